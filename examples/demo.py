"""Search, highlight and reconstruct a few texts in one minute: make demo."""

from __future__ import annotations

import sys

from rich.console import Console

import textnuggets
from textnuggets.analysis.highlight import highlight, to_plain, to_terminal

QUERY = "Why can nobody cross the river?"
TEXTS = [
    "She opened the letter, read it twice, and put it back into the drawer without a word to her brother.",
    "The bridge could not be used after the flood, so that the villagers had to go round by the mill.",
    "The museum is open from ten to five; children under twelve do not pay.",
    "Rain fell all night; in the morning, the water had risen over the old stone bridge, and nobody could pass.",
]


def main() -> None:
    """Encode, rank, highlight and reconstruct."""
    console = Console(highlight=False, soft_wrap=True)
    print(
        "loading the model 'search' (takes a few seconds to import torch and transformers)", file=sys.stderr
    )
    model = textnuggets.load("search")

    console.print("\n[bold]1. encode[/bold]: represent each text by a few vectors")
    nuggets = model.encode_document(TEXTS)
    for item in nuggets:
        console.print(f"   {item.token_count:3} tokens -> {len(item)} vectors of {item.vectors.shape[1]}")

    console.print(f"\n[bold]2. search[/bold]: {QUERY}")
    scores = model.similarity(model.encode_query(QUERY), nuggets)[0]
    for score, text in sorted(zip(scores, TEXTS, strict=True), reverse=True):
        console.print(f"   {score:5.2f}  {text}", markup=False)

    model = textnuggets.load("reconstruct")
    ratio = 0.25
    console.print(
        "\n[bold]3. highlight[/bold]: the tokens that the model for text compression selects, one in four"
    )
    for text in TEXTS:
        pieces = highlight(model, text, ratio)
        console.print("  ", to_terminal(pieces) if console.color_system else to_plain(pieces), markup=False)

    console.print("\n[bold]4. reconstruct[/bold]: decode those vectors, without the text")
    for text, decoded in zip(TEXTS, model.reconstruct(model.encode(TEXTS, ratio=ratio)), strict=True):
        console.print(f"   {'same   ' if decoded == text else 'differs'} {decoded}", markup=False)


if __name__ == "__main__":
    main()
