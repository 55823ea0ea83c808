"""make demo: what nuggets are, in one minute and four steps."""

from __future__ import annotations

from rich.console import Console
from transformers.utils import logging

import textnuggets
from textnuggets.highlighting import highlight, to_plain, to_terminal

RATIO = 0.25
TEXTS = [
    "Rain fell all night; in the morning, the river had risen over the old stone bridge, and nobody could cross it.",
    "The bridge could not be used after the flood, so that the villagers had to go round by the mill.",
    "She opened the letter, read it twice, and put it back into the drawer without a word to her brother.",
]


def main() -> None:
    """Encode, highlight, reconstruct, compare."""
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    console = Console(highlight=False, soft_wrap=True)
    model = textnuggets.load("reconstruct")

    console.print("\n[bold]1. encode[/bold]: each text becomes a few of its token embeddings")
    nuggets = model.encode(TEXTS, ratio=RATIO)
    for item in nuggets:
        console.print(f"   {item.token_count:3} tokens -> {len(item):2} vectors of {item.vectors.shape[1]}")

    console.print("\n[bold]2. highlight[/bold]: the ones the scorer picked")
    for text in TEXTS:
        pieces = highlight(model, text, RATIO)
        console.print("  ", to_terminal(pieces) if console.color_system else to_plain(pieces), markup=False)

    console.print("\n[bold]3. reconstruct[/bold]: the vectors decoded back, without the text")
    for text, again in zip(TEXTS, model.reconstruct(nuggets), strict=True):
        console.print(f"   {'same  ' if again == text else 'differs'} {again}", markup=False)

    console.print(
        "\n[bold]4. compare[/bold]: mean-MaxSim of every text with every other, by the model for searching"
    )
    compared = textnuggets.load("search").encode(TEXTS, ratio=RATIO)
    for row in textnuggets.maxsim(compared, compared):
        console.print("   " + " ".join(f"{score:5.2f}" for score in row))


if __name__ == "__main__":
    main()
