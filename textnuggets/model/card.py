"""The model card that is written beside every saved model."""

from __future__ import annotations

from textnuggets.config import NuggetConfig

CARD = """\
---
library_name: textnuggets
tags:
- nugget
- multi-vector
- text-compression
{base}---
# Nugget model on {name}

Turns text into a variable number of vectors ("nuggets"), k = ceil(n * r) of its n token
embeddings, after *Nugget: Neural Agglomerative Embeddings of Text* (Qin & Van Durme, ICML 2023).

```python
import textnuggets

model = textnuggets.load("path-or-hub-id-of-this-model")
nuggets = model.encode(["Some text, and more of it."])
```

| setting | value |
|---|---|
| backbone | {name} ({architecture}) |
| ratio | {ratio} |
| selector | {selector} |
| scorer layer | {layer} |
| feedback | {feedback} |
| residual | {residual} |
| window | {window} |

The weights derive from the backbone's: its licence and credit apply.
"""


def model_card(config: NuggetConfig) -> str:
    """A README.md with the front matter the Hub reads."""
    assert config.backbone is not None
    name = config.backbone_name or f"a {config.backbone.model_type} configuration"
    # Only a hub id means something to others; a folder of this machine does not.
    is_hub_id = config.backbone_name is not None and config.backbone_name.count("/") == 1
    return CARD.format(
        base=f"base_model: {config.backbone_name}\n" if is_hub_id else "",
        name=name,
        architecture=config.backbone.model_type,
        ratio=config.ratio,
        selector=config.selector,
        layer=config.scorer_layer,
        feedback=config.feedback,
        residual=config.residual,
        window=config.window or "the backbone's",
    )
