"""Self-contained HTML report: verdicts on the paper's claims, figures and tables, beside the published figures."""

from __future__ import annotations

import base64
import html
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from textnuggets.analysis.highlight import STYLE, Piece, to_paragraph
from textnuggets.errors import InputError
from textnuggets.evaluate import fidelity, perplexity, preferences, probing, reconstruction, similarity
from textnuggets.report.claims import check_claims
from textnuggets.report.published import PUBLISHED, SETTING

TABLES = {
    "reconstruction": reconstruction.to_markdown,
    "preferences": preferences.to_markdown,
    "probing": probing.to_markdown,
    "fidelity": fidelity.to_markdown,
    "similarity": similarity.to_markdown,
    "perplexity": perplexity.to_markdown,
}
TITLES = {
    "reconstruction": "Reconstruction (section 5.1)",
    "preferences": "Tokens selected as nuggets (section 5.2)",
    "probing": "Content of a nugget (section 5.3)",
    "fidelity": "A ratio for each document (not in the paper)",
    "similarity": "Similarity of documents (section 6.1)",
    "perplexity": "Language modelling with compressed history (section 6.2)",
}
DIFFERENCES = (
    "Figures are not comparable with the paper's if the backbone, the texts or the size differ; compare only whether "
    "the claims hold."
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
    """Return all results files below a folder, sorted by question and then by path."""
    found = []
    for path in sorted(folder.rglob("*.json")):
        try:
            results = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}: not JSON ({error}).") from error
        if isinstance(results, dict) and results.get("question") in list(TABLES):
            _check_shape(path, results)
            found.append((path, results))
    if not found:
        raise InputError(f"{folder}: no results found; run 'textnuggets evaluate' with --out below it first.")
    return sorted(found, key=lambda item: list(TABLES).index(item[1]["question"]))


def _check_shape(path: Path, results: dict[str, Any]) -> None:
    """Raise InputError if something that the report shows is missing from a results file."""
    try:
        _section("", path, results, figures=False)
        check_claims([results])
        settings_table([("", results)])
        if results["question"] == "reconstruction":
            _curves("", results)
    except Exception as error:  # many functions read results, each another part
        raise InputError(
            f"{path}: not results of {results['question']!r} as this version writes them ({error!r})."
        ) from error


def make_report(folder: Path) -> str:
    """Return the HTML page of all results files and figures below a folder."""
    found = [(_name(folder, path), path, results) for path, results in find_results(folder)]
    parts = ["<h1>Results of nugget models</h1>"]
    verdicts = claims_table([(name, results) for name, _, results in found])
    if verdicts:
        parts += ["<h2>The paper's claims</h2>", table_to_html(verdicts)]
    parts += [
        "<h2>What differs from the paper</h2>",
        f'<p class="note">{html.escape(DIFFERENCES)}</p>',
        table_to_html(settings_table([(name, results) for name, _, results in found])),
    ]
    for question, title in TITLES.items():
        some = [item for item in found if item[2]["question"] == question]
        if some:
            parts.append(f"<h2>{html.escape(title)}</h2>")
            if question in PUBLISHED:
                parts.append(f'<div class="note">{table_to_html(PUBLISHED[question])}</div>')
            if question == "reconstruction":
                parts.append(_joined_figure([(name, results) for name, _, results in some]))
            parts += [_section(*item, figures=question != "reconstruction") for item in some]
    body = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Nuggets: results</title><style>{STYLE}{LAYOUT}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def _section(name: str, path: Path, results: dict[str, Any], figures: bool) -> str:
    """Return the section of one results file: figures, table, examples, seed and versions."""
    parts = [f"<h3>{html.escape(name)}</h3>"]
    for figure in sorted(path.parent.glob(f"{path.stem}*.png")) if figures else ():
        parts.append(_image(figure.read_bytes(), f"{name}: {figure.stem}"))
    parts.append(table_to_html(TABLES[results["question"]](results)))
    parts += [to_paragraph([Piece(**piece) for piece in text]) for text in results.get("examples", [])]
    versions = ", ".join(f"{key} {value}" for key, value in results["versions"].items())
    parts.append(f'<p class="note">Seed {results["seed"]}; {html.escape(versions)}.</p>')
    return "\n".join(parts)


def _joined_figure(named: list[tuple[str, dict[str, Any]]]) -> str:
    """Return one figure of BLEU against the ratio, with a curve per result and length."""
    from textnuggets.report.figures import draw_reconstruction

    curves = [curve for name, results in named for curve in _curves(name, results)]
    png = io.BytesIO()
    draw_reconstruction(curves).savefig(png, format="png", dpi=150)
    return _image(png.getvalue(), "BLEU against the ratio")


def _curves(name: str, results: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return the points of a result, named, by the length of the documents."""
    curves = []
    for length in sorted({int(item["max_tokens"]) for item in results["results"]}):
        rows = [
            {"ratio": float(item["ratio"]), "bleu": float(item["bleu"])}
            for item in results["results"]
            if item["max_tokens"] == length
        ]
        curves.append((f"{name}, {length} tokens", {"results": rows}))
    return curves


def _image(data: bytes, alternative: str) -> str:
    coded = base64.b64encode(data).decode()
    return f'<figure><img alt="{html.escape(alternative)}" src="data:image/png;base64,{coded}"></figure>'


def claims_table(named: Sequence[tuple[str, dict[str, Any]]]) -> str:
    """Return the paper's claims with the verdict of every result as a Markdown table; empty if there are none."""
    verdicts = [(name, verdict) for name, results in named for verdict in check_claims([results])]
    if not verdicts:
        return ""
    rows = ["| claim | in the paper | result | here | figure |", "|---|---|---|---|---|"]
    before = None
    for claim in dict.fromkeys(verdict.claim for _, verdict in verdicts):
        for name, verdict in verdicts:
            if verdict.claim == claim:
                first = (claim, verdict.paper) if claim != before else ("", "")
                rows.append(
                    f"| {first[0]} | {first[1]} | {name} | **{verdict.verdict}** | {verdict.figure} |"
                )
                before = claim
    return "\n".join(rows)


def settings_table(named: Sequence[tuple[str, dict[str, Any]]]) -> str:
    """Return backbone, size and texts of the paper and of every evaluated model as a Markdown table."""
    rows = ["| result | model | texts it was measured on |", "|---|---|---|"]
    rows.append(f"| the paper | {SETTING} | the dev set of WMT19 |")
    seen: dict[str, list[str]] = {}
    for name, results in named:
        model, texts = results.get("model"), ", ".join(item["source"] for item in results["data"])
        if model is None:  # similarity compares several models, which are in its own table
            continue
        described = (
            f"{model['backbone']}, {model['parameters'] / 1e6:.1f} M parameters; scorer at layer {model['scorer_layer']}"
            f"{'' if model['feedback'] else ', no feedback'}; selector {model['selector']}, residual {model['residual']}"
        )
        row = f"{described} | {texts}"
        seen.setdefault(row, [])
        if name not in seen[row]:
            seen[row].append(name)
    return "\n".join([*rows, *(f"| {', '.join(names)} | {row} |" for row, names in seen.items())])


def _name(folder: Path, path: Path) -> str:
    """Return the name of a results file: its folder relative to the top folder."""
    inner = path.parent.relative_to(folder)
    return str(inner) if str(inner) != "." else folder.resolve().name


def table_to_html(markdown: str) -> str:
    """Convert the Markdown of this package, tables and plain lines, to HTML."""
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
