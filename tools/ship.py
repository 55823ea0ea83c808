"""python -m tools.ship RUN RESULTS --steps N: put a trained model into the package, compact, with its card.

RUN is the folder of a training run of the recipe 'cooldown'; RESULTS are folders that `textnuggets evaluate reconstruction` wrote for
its best model, stored compact (give the folder of a first `ship --to` for that).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from textnuggets import NuggetModel
from textnuggets.evaluate.reconstruction import to_markdown
from textnuggets.files import replacing_folder
from textnuggets.model.checkpoint import SHIPPED

CARD = """\
---
library_name: textnuggets
language: en
license: cc-by-4.0
base_model: Helsinki-NLP/opus-mt-fr-en
tags:
- nugget
- multi-vector
- text-compression
---
# The default model of textnuggets

Turns English text into k = ceil(n * r) vectors and back, at any ratio r from 0.05 to 0.5: `textnuggets.load()`.
After *Nugget: Neural Agglomerative Embeddings of Text* (Qin & Van Durme, ICML 2023).

## What comes back

{results}

## How it was made

- **Backbone**: [opus-mt-fr-en](https://huggingface.co/Helsinki-NLP/opus-mt-fr-en) by the Language Technology Research
  Group at the University of Helsinki (Tiedemann & Thottingal, *OPUS-MT: Building open translation services for the
  World*, EAMT 2020), trained on [OPUS](https://opus.nlpl.eu). Fed English it nearly copies it. Its vocabulary is cut
  down to the {pieces:,} English pieces, by opus-mt-en-fr's SentencePiece model, which shares it.
- **Data**: English Wikipedia of 2015 (CC BY-SA 3.0), 12,370 articles, and 56 English novels of 1840-1920 (ELTeC-eng;
  texts in the public domain), as documents of up to {max_tokens} tokens.
- **Training**: `textnuggets train default`, {steps:,} steps of 1,536 tokens on two CPU cores, then `textnuggets train cooldown`.
- **Storage**: matrices as int8 with a scale for every 64 columns (`textnuggets.model.compact`); the figures above are of
  the weights as they are stored.

## Limits

English prose of an encyclopedia and of novels; other text, code and other languages come back worse. A text longer
than {window} tokens is encoded in parts. The vectors hold the text: whoever has them and this model can read most of
it. They were trained to be decoded, not to be compared; for search a model trained for it is better.

## Licence

OPUS-MT is published under CC BY 4.0 by its authors (the copy on the Hugging Face Hub says Apache-2.0). These derived
weights are CC BY 4.0; credit OPUS-MT as above. The code of textnuggets is Apache-2.0.
"""


def main() -> None:
    """Write the folder that ships."""
    parser = argparse.ArgumentParser(prog="python -m tools.ship", description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("results", type=Path, nargs="*")
    parser.add_argument(
        "--steps", type=int, required=True, help="of the recipe 'default', before it was cooled down"
    )
    parser.add_argument("--to", type=Path, default=SHIPPED / "default")
    chosen = parser.parse_args()
    model = NuggetModel.from_pretrained(chosen.run / "best")
    model.config.backbone_name = "Helsinki-NLP/opus-mt-fr-en"
    model.config.window = 128  # as it was trained: longer texts go in parts
    tables = [
        to_markdown(json.loads((folder / "reconstruction.json").read_text(encoding="utf-8")))
        for folder in chosen.results
    ]
    card = CARD.format(
        results="\n".join(tables) or "Not measured yet.",
        pieces=len(model.tokenizer),
        max_tokens=128,
        steps=chosen.steps,
        window=model.window,
    )
    chosen.to.parent.mkdir(parents=True, exist_ok=True)
    with replacing_folder(chosen.to) as folder:
        (folder / "README.md").write_text(card, encoding="utf-8")
        model.save_pretrained(folder, compact_weights=True)
    size = sum(file.stat().st_size for file in chosen.to.iterdir())
    print(f"{chosen.to}: {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
