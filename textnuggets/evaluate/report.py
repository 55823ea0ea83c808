"""One self-contained page of everything that was evaluated: figures, tables, the paper's claims."""

from __future__ import annotations

import base64
import html
import json
from pathlib import Path
from typing import Any

from textnuggets.errors import InputError
from textnuggets.evaluate import fidelity, preferences, probing, reconstruction, similarity
from textnuggets.evaluate.claims import check_claims
from textnuggets.highlighting import STYLE, Piece, to_paragraph

TABLES = {
    "reconstruction": reconstruction.to_markdown,
    "preferences": preferences.to_markdown,
    "probing": probing.to_markdown,
    "fidelity": fidelity.to_markdown,
    "similarity": similarity.to_markdown,
}
TITLES = {
    "reconstruction": "What nuggets keep (section 5.1)",
    "preferences": "What nuggets are (section 5.2)",
    "probing": "What a nugget stands for (section 5.3)",
    "fidelity": "As many nuggets as a document needs (not in the paper)",
    "similarity": "Which document a query belongs to (section 6.1)",
}
DIFFERENCES = (
    "The paper trained mBART-50 (602 M parameters, 12 + 12 layers) on WMT19 news documents with four GPUs for 36 to 48 "
    "hours, one model for each ratio. Where the backbone, the texts or the size differ here, figures do not compare; "
    "what can be compared is whether its claims hold."
)
LAYOUT = """
body { font: 16px/1.5 system-ui, sans-serif; background: var(--paper); max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; display: block; overflow-x: auto; }
th, td { border-bottom: 1px solid color-mix(in srgb, CanvasText 20%, var(--paper)); padding: .25rem .75rem .25rem 0;
  text-align: left; vertical-align: top; }
figure { margin: 1rem 0; } figure img { max-width: 100%; background: #fff; }
.note { color: color-mix(in srgb, CanvasText 65%, var(--paper)); }
"""


def find_results(folder: Path) -> list[tuple[Path, dict[str, Any]]]:
    """All results below a folder, by question and then by name."""
    found = []
    for path in sorted(folder.rglob("*.json")):
        try:
            results = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise InputError(f"{path}: not JSON ({error}).") from error
        if isinstance(results, dict) and results.get("question") in TABLES:
            found.append((path, results))
    if not found:
        raise InputError(f"{folder} holds no results: run 'textnuggets evaluate' with --out in it first.")
    return sorted(found, key=lambda item: list(TABLES).index(item[1]["question"]))


def make_report(folder: Path) -> str:
    """The page, from the results files and figures below a folder."""
    found = find_results(folder)
    parts = [
        "<h1>What nuggets keep, choose and hold</h1>",
        f'<p class="note">{html.escape(DIFFERENCES)}</p>',
        "<h2>The paper's claims</h2>",
    ]
    for name in sorted({_name(folder, path) for path, _ in found}):
        verdicts = check_claims(results for path, results in found if _name(folder, path) == name)
        if verdicts:
            rows = ["| claim | in the paper | here | figure |", "|---|---|---|---|"]
            rows += [f"| {v.claim} | {v.paper} | **{v.verdict}** | {v.figure} |" for v in verdicts]
            parts += [f"<h3>{html.escape(name)}</h3>", table_to_html("\n".join(rows))]
    question = None
    for path, results in found:
        if results["question"] != question:
            question = results["question"]
            parts.append(f"<h2>{html.escape(TITLES[question])}</h2>")
        parts.append(f"<h3>{html.escape(_name(folder, path))}</h3>")
        for figure in sorted(path.parent.glob(f"{path.stem}*.png")):
            data = base64.b64encode(figure.read_bytes()).decode()
            parts.append(
                f'<figure><img alt="{html.escape(figure.stem)}" src="data:image/png;base64,{data}"></figure>'
            )
        parts.append(table_to_html(TABLES[results["question"]](results)))
        parts += [to_paragraph([Piece(**piece) for piece in text]) for text in results.get("examples", [])]
        versions = ", ".join(f"{key} {value}" for key, value in results["versions"].items())
        parts.append(f'<p class="note">Seed {results["seed"]}; {html.escape(versions)}.</p>')
    body = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Nuggets: results</title><style>{STYLE}{LAYOUT}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def _name(folder: Path, path: Path) -> str:
    """What a results file is called: the folders between it and the top one."""
    inner = path.parent.relative_to(folder)
    return str(inner) if str(inner) != "." else folder.resolve().name


def table_to_html(markdown: str) -> str:
    """Our own Markdown tables, and the lines between them, as HTML."""
    parts: list[str] = []
    rows: list[str] = []
    for line in [*markdown.splitlines(), ""]:
        if line.startswith("|"):
            rows.append(line)
            continue
        if rows:
            head, _, *body = rows
            cells = [f"<tr>{_cells(head, 'th')}</tr>", *(f"<tr>{_cells(row, 'td')}</tr>" for row in body)]
            parts.append(f"<table>{''.join(cells)}</table>")
            rows = []
        if line:
            parts.append(f"<p>{html.escape(line)}</p>")
    return "\n".join(parts)


def _cells(row: str, tag: str) -> str:
    cells = []
    for cell in row.strip("|").split(" | "):
        text = cell.strip(" |")
        if text.startswith("**"):
            text, wrap = text.strip("*"), "strong"
        elif text.startswith("`"):
            text, wrap = text.strip("`"), "code"
        else:
            wrap = ""
        shown = html.escape(text)
        cells.append(f"<{tag}>{f'<{wrap}>{shown}</{wrap}>' if wrap else shown}</{tag}>")
    return "".join(cells)
