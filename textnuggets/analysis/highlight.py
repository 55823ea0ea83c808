"""Texts with nuggets marked and tokens shaded by score (the paper's figure 5)."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from textnuggets.model.budget import Budget
from textnuggets.model.cancelling import check_cancelled
from textnuggets.model.encoder import TextEncoder
from textnuggets.model.padding import pad_rows
from textnuggets.model.windows import Window, cut_into_windows

if TYPE_CHECKING:
    from rich.text import Text

LIGHTEST, NUGGET_GREEN = 195, (153, 255, 153)  # the colours of the paper's figure


@dataclass(frozen=True)
class Piece:
    """A span of text: a token, or, without a score, the text between two tokens."""

    text: str
    score: float | None = None
    shade: float = 0.0
    """Rank of the score, scaled from 0 for the lowest in the text to 1 for the highest."""
    is_nugget: bool = False
    is_special: bool = False
    """Whether it is a token such as </s> that covers no characters."""


def highlight(model: TextEncoder, text: str, ratio: float | None = None) -> list[Piece]:
    """Split a text into pieces; joining those that are not special restores the text."""
    budget = Budget.of(ratio, None, model.config.ratio)
    tokens: list[tuple[tuple[int, int], str, float, bool]] = []
    (windows,) = cut_into_windows(model.tokenizer, [text], model.window)
    for window, k in zip(windows, budget.share([len(w.encoding) for w in windows]), strict=True):
        tokens += _score(model, window, k)
    ranks = sorted({score for _, _, score, _ in tokens})
    rank = {score: index / max(1, len(ranks) - 1) for index, score in enumerate(ranks)}
    pieces: list[Piece] = []
    at = 0
    for (start, end), surface, score, is_nugget in tokens:
        if start > at:
            pieces.append(Piece(text[at:start]))
        start = max(start, at)  # byte-level tokens may share a character
        special = end <= start
        if not special or is_nugget:
            shown = surface if special else text[start:end]
            pieces.append(Piece(shown, score, rank[score], is_nugget, special))
        at = max(at, end)
    if at < len(text):
        pieces.append(Piece(text[at:]))
    return pieces


def _score(model: TextEncoder, window: Window, k: int) -> list[tuple[tuple[int, int], str, float, bool]]:
    """Return `(span, surface, score, is_nugget)` of every token of a window."""
    check_cancelled()
    input_ids, mask = pad_rows([window.ids], model.pad_id)
    with model.evaluating():
        computed = model.compute(input_ids, mask, [k], np.array([window.sentence_ends()]))
    marks = np.isin(np.arange(mask.shape[1]), computed.positions[0, : computed.kept[0]]).tolist()
    scores = computed.token_scores[0].tolist()
    return [
        (window.span(i), window.surface(i), score, mark)
        for i, (score, mark) in enumerate(zip(scores, marks, strict=True))
    ]


def to_terminal(pieces: list[Piece]) -> Text:
    """Return black text on white, darker for higher scores, nuggets on green, whatever the terminal theme."""
    from rich.style import Style
    from rich.text import Text

    shown = Text()
    for piece in pieces:
        grey = _grey(piece)
        green = "#{:02x}{:02x}{:02x}".format(*NUGGET_GREEN)
        background = green if piece.is_nugget else "#ffffff"
        shown.append(piece.text, Style(color=f"#{grey:02x}{grey:02x}{grey:02x}", bgcolor=background))
    return shown


def to_plain(pieces: list[Piece]) -> str:
    """Return plain text with nuggets in [brackets], for output without colours."""
    return "".join(f"[{piece.text}]" if piece.is_nugget else piece.text for piece in pieces)


def to_html(texts: list[list[Piece]], title: str, remark: str) -> str:
    """Return a self-contained HTML page, light or dark by preference, with scores shown on hover."""
    paragraphs = "\n".join(map(to_paragraph, texts))
    return PAGE.format(title=escape(title), remark=escape(remark), paragraphs=paragraphs, style=STYLE)


def to_paragraph(pieces: list[Piece]) -> str:
    """Return one text as an HTML paragraph, styled by `STYLE`."""
    return f'<p class="highlighted">{"".join(map(_html_piece, pieces))}</p>'


def _html_piece(piece: Piece) -> str:
    if piece.score is None:
        return escape(piece.text)
    kind = "s n" if piece.is_special else "n" if piece.is_nugget else "t"
    tag = "mark" if piece.is_nugget else "span"
    style = f"--shade:{piece.shade:.2f}"
    title = f"score {piece.score:.3f}"
    return f'<{tag} class="{kind}" style="{style}" title="{title}">{escape(piece.text)}</{tag}>'


def _grey(piece: Piece) -> int:
    return round(LIGHTEST * (1 - piece.shade))


STYLE = """
:root { color-scheme: light dark; --paper: #fff; --green: #9f9; }
@media (prefers-color-scheme: dark) { :root { --paper: #16181c; --green: #1d6b32; } }
.highlighted { font: 18px/1.7 Georgia, serif; white-space: pre-wrap; overflow-wrap: anywhere; padding: .8em 1em;
  border: 1px solid color-mix(in srgb, CanvasText 25%, var(--paper)); }
.t, .n { color: color-mix(in srgb, CanvasText calc(35% + 65% * var(--shade)), var(--paper)); }
mark { background: var(--green); border-radius: 3px; padding: 0 1px; }
.s { font: 12px ui-monospace, monospace; margin-left: .3em; padding: 1px 3px; }
"""
PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}
body {{ max-width: 42em; margin: 3em auto; padding: 0 1em; background: var(--paper); }}
h1 {{ font: 600 22px/1.3 system-ui, sans-serif; }}
footer {{ font: 14px/1.5 system-ui, sans-serif; }}
</style>
</head>
<body>
<h1>{title}</h1>
{paragraphs}
<footer>{remark}</footer>
</body>
</html>
"""
