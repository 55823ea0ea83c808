"""Model cards of the shipped models: tools/cards/NAME.md with its tables, and the figures as metadata that a model hub reads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from huggingface_hub import EvalResult, ModelCard, ModelCardData

CARDS = Path(__file__).parent / "cards"
MEASURES = {"nDCG@10": "ndcg_at_10", "R@100": "recall_at_100", "RR": "mrr", "Success@1": "accuracy_at_1"}
MISSING = "Not measured yet."


def fill_card(name: str, tables: Sequence[Path], **facts: object) -> str:
    """Return the card of a shipped model.

    Args:
        name: Name of the model.
        tables: Markdown files of its results; figures come from the JSON file beside each.
        facts: Values of further placeholders in the card.
    """
    template = (CARDS / f"{name}.md").read_text(encoding="utf-8")
    results = "\n".join(table.read_text(encoding="utf-8") for table in tables) or MISSING
    card = ModelCard(template.format(results=results, **facts))
    figures = [figure for table in tables for figure in _figures(name, table.with_suffix(".json"))]
    if figures:
        data = cast("ModelCardData", card.data)
        data.model_name, data.eval_results = f"textnuggets {name}", figures
    return str(card)


def _figures(name: str, path: Path) -> Iterator[EvalResult]:
    """Yield the figures of a results file that are the model's own; nothing if there is no file."""
    if not path.is_file():
        return
    found = json.loads(path.read_text(encoding="utf-8"))
    source = found["data"][0]["source"].split(".")[0]
    rows: Iterable[dict[str, Any]] = found["results"]
    if found["question"] == "similarity":
        for row in rows:
            if row["system"] == name:
                for measure, value in row["measures"].items():
                    kind = MEASURES.get(measure, measure)
                    yield _figure("text-retrieval", kind, measure, value["mean"], source)
    elif found["question"] == "reconstruction":
        for row in rows:
            label = f"BLEU at r = {row['ratio']:g}, up to {row['max_tokens']} tokens"
            yield _figure("feature-extraction", "bleu", label, row["bleu"], source)
    elif found["question"] == "perplexity":
        for row in rows:
            label = f"perplexity by word, {row['history']} segments of history, a stride of {row['stride']}"
            yield _figure("text-generation", "perplexity", label, row["word_perplexity"]["value"], source)


def _figure(task: str, kind: str, label: str, value: float, source: str) -> EvalResult:
    return EvalResult(
        task_type=task,
        dataset_type=source.replace("/", "-"),
        dataset_name=source,
        metric_type=kind,
        metric_name=label,
        metric_value=round(value, 1),
    )
