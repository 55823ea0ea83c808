"""make demo: what nuggets are, in one minute and four steps."""

from __future__ import annotations

import sys

from rich.console import Console
from transformers.utils import logging

import textnuggets
from textnuggets import NuggetModel
from textnuggets.errors import CheckpointError
from textnuggets.highlighting import highlight, to_plain, to_terminal

RATIO = 0.25


def demo_model() -> tuple[NuggetModel, list[str]]:
    """The model that comes with the package; until there is one, a toy that learns five sentences."""
    from tests.overfit import overfit
    from tests.tiny import CORPUS, tiny_model

    try:
        return textnuggets.load(), CORPUS
    except CheckpointError as error:
        print(f"note: {error}", file=sys.stderr)
        print("A toy model learns five sentences by heart instead (about 20 seconds) ...", file=sys.stderr)
        return overfit(tiny_model("bart", ratio=RATIO), CORPUS, steps=400), CORPUS


def main() -> None:
    """Encode, highlight, reconstruct, compare."""
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    console = Console(highlight=False, soft_wrap=True)
    model, texts = demo_model()

    console.print("\n[bold]1. encode[/bold]: each text becomes a few of its token embeddings")
    nuggets = model.encode(texts, ratio=RATIO)
    for item in nuggets:
        console.print(f"   {item.token_count:3} tokens -> {len(item):2} vectors of {item.vectors.shape[1]}")

    console.print("\n[bold]2. highlight[/bold]: the ones the scorer picked")
    for text in texts:
        pieces = highlight(model, text, RATIO)
        console.print("  ", to_terminal(pieces) if console.color_system else to_plain(pieces), markup=False)

    console.print("\n[bold]3. reconstruct[/bold]: the vectors decoded back, without the text")
    for text, again in zip(texts, model.reconstruct(nuggets), strict=True):
        console.print(f"   {'same  ' if again == text else 'differs'} {again}", markup=False)

    console.print("\n[bold]4. compare[/bold]: mean-MaxSim of every text with every other")
    for row in textnuggets.maxsim(nuggets, nuggets):
        console.print("   " + " ".join(f"{score:5.2f}" for score in row))


if __name__ == "__main__":
    main()
