"""Leaderboards of docs/leaderboard.md, from all results files below docs/results; `python -m tools.tables` writes them.

Results files are found by their names, so that a new one is listed without a change here.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from textnuggets import load
from textnuggets.model.fingerprint import fingerprint
from textnuggets.shipped import ALIASES

DOCS = Path(__file__).parent.parent / "docs"
SHIPPED = ("search", "reconstruct")
TASKS = {"cranfield": "Cranfield", "time": "TIME", "med": "MED", "scifact": "SciFact"}
MEASURES = {"R@100": "Recall@100", "RR": "MRR"}
KINDS = {"retrieval": "search in all documents", "reranking": "ranking of candidates"}
RATIO = 0.1  # at which models that decode are ordered
FEWEST = 2  # systems that make a comparison


class Line(NamedTuple):
    """A line of a leaderboard."""

    value: float
    """What lines are ordered by: the highest first."""
    measured: object
    """What was measured; of several lines with the same, the one with most cells counts."""
    cells: dict[str, str]
    """Cells by column, without empty ones."""


def search_boards() -> str:
    """Return the systems of every search task, best first."""
    boards: dict[str, list[Line]] = defaultdict(list)
    for path, found in _results("similarity"):
        settings = found["settings"]
        name = settings["task"].removeprefix("retrieval/").removeprefix("tasks/")
        parts = [TASKS.get(name, name.replace("_", " ").replace("/", ", ")), settings.get("split")]
        heading = (
            f"{', '.join(filter(None, parts))}: {found['queries']} queries, {found['documents']:,} documents, "
            f"{KINDS[settings['kind']]}"
        )
        boards[heading] += [_search_line(row, settings["similarity"], path) for row in found["results"]]
    return _boards(boards)


def _search_line(row: dict[str, Any], similarity: str, path: Path) -> Line:
    name = row["system"]
    # The name of a baseline says what it is; that of a model is only a label. Half precision changes no shown digit.
    model = name.partition("@")[0] if ":" in name or name == "bm25" else row["weights"]
    precision = row.get("dtype", "float32").replace("float16", "float32")
    measured = (model, row.get("ratio"), row.get("query_ratio"), precision, similarity)
    cells = {
        "system": _named(name, row.get("weights")) + ("" if similarity == "maxsim" else f", {similarity}")
    }
    if row["vectors"] is not None:
        cells["vectors per document"] = f"{row['vectors']:.1f}"
    if row.get("bytes"):
        cells["kB per document"] = f"{row['bytes'] / 1000:.1f}"
    for measure, value in row["measures"].items():
        cells[MEASURES.get(measure, measure)] = (
            f"{value['mean']:.1f} ({value['low']:.1f} to {value['high']:.1f})"
        )
    main = next(iter(row["measures"].values()))
    return Line(main["mean"], measured, cells | {"results": _link(path)})


def reconstruction_boards() -> str:
    """Return the models that decode, by BLEU at r = 0.1."""
    boards: dict[str, list[Line]] = defaultdict(list)
    for path, found in _results("reconstruction"):
        model = found["model"]
        source = found["data"][0]["source"].split(".")[0].replace("/", ", ")
        for length in sorted({row["max_tokens"] for row in found["results"]}):
            rows = [row for row in found["results"] if row["max_tokens"] == length]
            heading = f"{source}: {rows[0]['documents']} documents of up to {length} tokens, {found['settings']['beams']} beams"
            bleu = {row["ratio"]: row["bleu"] for row in rows}
            cells = {"model": _named(_folder(path), model["weights"])}
            cells |= {f"r = {ratio:g}": f"{bleu[ratio]:.1f}" for ratio in sorted(bleu) if ratio}
            if RATIO in bleu:
                measured = (model["weights"], *bleu.items())
                boards[heading].append(Line(bleu[RATIO], measured, cells | {"results": _link(path)}))
    return _boards(boards)


def perplexity_boards() -> str:
    """Return the language models with their longest history, by perplexity."""
    boards: dict[str, list[Line]] = defaultdict(list)
    for path, found in _results("perplexity"):
        row = max(found["results"], key=lambda row: row["history"])
        value = row["word_perplexity"]
        source = found["data"][0]["source"].split("/")[-1].removesuffix(".txt.gz")
        heading = f"{source}: {row['articles']} articles, {row['words']:,} words, a stride of {row['stride']}"
        cells = {
            "language model": _folder(path.parent),
            "segments of history": str(row["history"]),
            "perplexity by word": f"{value['value']:.1f} ({value['low']:.1f} to {value['high']:.1f})",
            "results": _link(path),
        }
        boards[heading].append(Line(-value["value"], path, cells))
    return _boards(boards)


def _results(question: str) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield all results files of a question, by path."""
    for path in sorted((DOCS / "results").rglob(f"{question}.json")):
        yield path, json.loads(path.read_text(encoding="utf-8"))


def _folder(path: Path) -> str:
    """Return the folder of a results file, below docs/results."""
    return path.parent.relative_to(DOCS / "results").as_posix()


def _link(path: Path) -> str:
    return f"[{_folder(path)}]({path.with_suffix('.md').relative_to(DOCS).as_posix()})"


def _named(name: str, weights: str | None) -> str:
    """Return the name of a system, in bold if it is a model that ships; earlier weights of one are called so."""
    if weights in _shipped():
        return f"**{_shipped()[weights]}**" if ":" not in name else f"**{name}**"
    name = ALIASES.get(name, name)
    return f"{name}, earlier weights" if name in SHIPPED else name


@cache
def _shipped() -> dict[str | None, str]:
    """Return the models that ship, by fingerprint."""
    return {fingerprint(load(name)): name for name in SHIPPED}


def _boards(boards: dict[str, list[Line]]) -> str:
    """Return a table under a heading for each comparison, those of search in all documents first."""
    parts = []
    for heading in sorted(boards, key=lambda heading: (KINDS["reranking"] in heading, heading)):
        best: dict[object, Line] = {}
        for line in boards[heading]:
            if line.measured not in best or len(line.cells) > len(best[line.measured].cells):
                best[line.measured] = line
        if len(best) >= FEWEST:
            parts.append(f"### {heading}\n\n{_table(sorted(best.values(), key=lambda line: -line.value))}")
    return "\n\n".join(parts)


def _table(lines: Sequence[Line]) -> str:
    """Return the lines with their ranks; columns are those that some line has."""
    columns = sorted({column for line in lines for column in line.cells}, key=_place(lines))
    rows = [["#", *columns], ["---"] * (len(columns) + 1)]
    rows += [
        [str(i), *(line.cells.get(name, "") for name in columns)] for i, line in enumerate(lines, start=1)
    ]
    return "\n".join(map(_row, rows))


def _place(lines: Sequence[Line]) -> Callable[[str], int]:
    """Return the order of columns: that of the line with most of them, ratios ascending, and at last the results."""
    fullest = max(lines, key=lambda line: len(line.cells)).cells
    columns = dict.fromkeys([*fullest, *(column for line in lines for column in line.cells)])
    order = sorted(columns, key=lambda column: float(column[4:]) if column.startswith("r = ") else 0)
    return [*(column for column in order if column != "results"), "results"].index


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


TABLES: dict[str, Callable[[], str]] = {
    "board-search": search_boards,
    "board-reconstruction": reconstruction_boards,
    "board-perplexity": perplexity_boards,
}
