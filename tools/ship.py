"""python -m tools.ship NAME MODEL [TABLE.md ...]: copy a model into the package, with its card.

NAME is reconstruct, search or lm; MODEL is the folder of a model: `best` of a training run, or what `tools.search_model`
wrote. The tables come from `textnuggets evaluate` or `textnuggets lm evaluate` on the weights as they are stored: write
these to another folder with --to first, and evaluate that.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from textnuggets import NuggetLM, NuggetModel, load
from textnuggets.io.folders import replacing_folder
from textnuggets.shipped import OWN, find_shipped
from tools.model_card import fill_card

BACKBONES = {"reconstruct": "Helsinki-NLP/opus-mt-fr-en", "search": "thenlper/gte-small"}
WINDOWS = {"reconstruct": 128, "search": 256}  # longer texts are split into windows
BITS = 7  # of stored weights; as good as eight, and an eighth smaller once compressed (LOG.md)


def write_model(name: str, source: Path, folder: Path) -> dict[str, int]:
    """Write the weights as they are shipped, and return the values for the model card."""
    if name == "lm":
        NuggetLM.from_pretrained(str(source)).save_difference(folder, "reconstruct", load("reconstruct"))
        return {}
    model = NuggetModel.from_pretrained(source)
    model.config.backbone_name, model.config.window = BACKBONES[name], WINDOWS[name]
    model.save_pretrained(folder, compact_weights=BITS)
    return {"pieces": len(model.tokenizer), "window": model.window}


def main() -> None:
    """Write the folder of a shipped model."""
    parser = argparse.ArgumentParser(prog="python -m tools.ship", description=__doc__)
    parser.add_argument("name", choices=("reconstruct", "search", "lm"))
    parser.add_argument("model", type=Path)
    parser.add_argument("tables", type=Path, nargs="*")
    parser.add_argument("--to", type=Path, help="output folder; the package's by default")
    chosen = parser.parse_args()
    to = chosen.to or (find_shipped("lm") if chosen.name == "lm" else OWN / chosen.name)
    assert to is not None  # `lm` is a shipped model
    to.parent.mkdir(parents=True, exist_ok=True)
    with replacing_folder(to) as folder:
        facts = write_model(chosen.name, chosen.model, folder)
        (folder / "README.md").write_text(fill_card(chosen.name, chosen.tables, **facts), encoding="utf-8")
    size = sum(file.stat().st_size for file in to.iterdir())
    print(f"{to}: {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
