"""The model card saved with every model."""

from __future__ import annotations

from textnuggets.config import ARCHITECTURE, NuggetConfig

CARD = """\
---
library_name: textnuggets
pipeline_tag: {pipeline}
tags:
- nugget
- multi-vector
{tags}
{base}---
# Nugget model on {name}

Encodes a text of n tokens as k = ceil(n * r) vectors ("nuggets"), taken from its n token
embeddings, following *Nugget: Neural Agglomerative Embeddings of Text* (Qin & Van Durme, ICML 2023).

```python
import textnuggets

model = textnuggets.load("path-or-hub-id-of-this-model")
nuggets = model.encode(["Some text, and some more."])
```

| setting | value |
|---|---|
| backbone | {name} ({architecture}) |
{settings}
| window | {window} |

The weights are derived from the backbone's, so its licence and attribution apply.
"""


def model_card(config: NuggetConfig) -> str:
    """Return the text of README.md, with the front matter that the Hub reads."""
    assert config.backbone is not None
    name = config.backbone_name or f"a {config.backbone.model_type} configuration"
    # A local folder name is meaningless on other machines.
    is_hub_id = config.backbone_name is not None and config.backbone_name.count("/") == 1
    # A model whose vectors may be compared can search; others were trained to be decoded.
    tags = ("late-interaction", "sentence-similarity") if config.comparable else ("text-compression",)
    return CARD.format(
        pipeline="sentence-similarity" if config.comparable else "feature-extraction",
        tags="\n".join(f"- {tag}" for tag in tags),
        base=f"base_model: {config.backbone_name}\n" if is_hub_id else "",
        name=name,
        architecture=config.backbone.model_type,
        settings="\n".join(
            f"| {key.replace('_', ' ')} | {getattr(config, key)} |" for key in ("ratio", *ARCHITECTURE)
        ),
        window=config.window or "the backbone's limit",
    )
