"""python -m tools.tables: regenerate the tables of README.md, docs/results.md and docs/leaderboard.md from docs/results."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from textnuggets.report.page import claims_table
from textnuggets.shipped import JOBS, find_shipped
from tools import language, leaderboard, reconstruction
from tools.marks import fill_marks
from tools.reconstruction import by_ratio

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "docs" / "results"
PAGES = (ROOT / "README.md", ROOT / "docs" / "results.md", ROOT / "docs" / "leaderboard.md")
LICENCES = {"apache-2.0": "Apache-2.0", "cc-by-4.0": "CC BY 4.0", "mit": "MIT"}
SINGLE = ("0.05", "0.1", "0.15", "0.25")
# Results that the paper's claims are checked on, by the label in the table.
CLAIMED = {
    "free top-k": (
        "default/lengths/reconstruction",
        "default/nuggets/preferences",
        "default/nuggets/probing",
        "default/nuggets-256/probing",
    ),
    "free top-k, r = 0.25": ("default/nuggets-0.25/preferences",),
    "for r = 0.1 alone": (
        "single-ratio/single-0.1/lengths/reconstruction",
        "single-ratio/single-0.1/preferences",
        "single-ratio/single-0.1/probing",
    ),
    "autoencoder, layer 3, 300 steps": ("autoencode-layer-3/preferences",),
    "translate en-fr": (
        "translate/dev/reconstruction",
        "translate/nuggets/preferences",
        "translate/nuggets/probing",
    ),
    "translate fr-en": ("translate-fr/nuggets/preferences",),
    "search, token, 100 steps": ("search/gather-token/preferences",),
}
LENGTHS = {
    "free top-k": "default/lengths",
    "for r = 0.1 alone": "single-ratio/single-0.1/lengths",
    "translate en-fr": "translate/lengths",
}
FIDELITY = {"free top-k": "default/nuggets", "the model for r = 0.1 alone": "single-ratio/single-0.1"}
# Search tasks and their column labels.
SEARCHED = {"cranfield": "Cranfield, nDCG@10", "time": "TIME, nDCG@10"}
RANKED = {**SEARCHED, "reranking": "reranking, MRR", "paraphrase": "paraphrases, MRR"}
ABLATED = {"paraphrase": "paraphrases, MRR", "reranking": "reranking, MRR"}


def read(name: str, question: str = "reconstruction") -> dict[str, Any]:
    """Read a results file."""
    found: dict[str, Any] = json.loads((RESULTS / name / f"{question}.json").read_text(encoding="utf-8"))
    return found


def models_table() -> str:
    """Return the shipped models with job, size, language and licence, from their folders."""
    rows = [
        "| name | job | backbone | vectors | size | language | licence |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, job in JOBS.items():
        folder = find_shipped(name)
        assert folder is not None
        card = (folder / "README.md").read_text(encoding="utf-8")
        facts = dict(re.findall(r"^(language|license|base_model): (.+)$", card, re.MULTILINE))
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        width = config.get("nugget", config)["backbone"]
        size = sum(file.stat().st_size for file in folder.iterdir())
        rows.append(
            f"| [`{name}`]({folder.relative_to(ROOT)}/README.md) | {job} | {facts['base_model'].split('/')[-1]} | "
            f"{width.get('d_model') or width.get('hidden_size')} dimensions | {size / 1e6:.0f} MB | English | "
            f"{LICENCES[facts['license']]} |"
        )
    return "\n".join(rows)


def single_ratio_table() -> str:
    """Return the autoencoder with free top-k trained further for one ratio alone, or for all of them."""
    every = by_ratio(read("single-ratio/any-ratio"))
    rows = [
        "| ratio | for this ratio alone: BLEU, loss | for all four: BLEU, loss | before: BLEU, loss |",
        "|---|---|---|---|",
    ]
    before = by_ratio(read("default/dev"))
    for name in SINGLE:
        ratio = float(name)
        alone = by_ratio(read(f"single-ratio/single-{name}"))[ratio]
        cells = [f"{row['bleu']:.1f}, {row['loss']:.3f}" for row in (alone, every[ratio], before[ratio])]
        rows.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join([*rows, "", f"{alone['documents']} dev documents, 5 beams; loss in nats per token."])


def translate_table() -> str:
    """Return translation from English to French through nuggets, and by the unmodified backbone."""
    found, plain = read("translate/dev"), read("translate/unmodified")
    rows = ["| vectors | BLEU | token accuracy |", "|---|---|---|"]
    for row in found["results"]:
        rows.append(f"| r = {row['ratio']:g} | {row['bleu']:.1f} | {row['token_accuracy']:.1%} |")
    (whole,) = plain["results"]
    rows.append(
        f"| every token, opus-mt-en-fr as it is | {whole['bleu']:.1f} | {whole['token_accuracy']:.1%} |"
    )
    return "\n".join([*rows, "", f"{whole['documents']} dev documents, {plain['settings']['beams']} beams."])


def tsdae_table() -> str:
    """Return the results of one mean-pooled vector, trained by denoising."""
    (row,) = read("tsdae")["results"]
    return (
        f"One vector per document: BLEU {row['bleu']:.1f}, token accuracy {row['token_accuracy']:.1%}, loss "
        f"{row['loss']:.2f} nats per token ({row['documents']} dev documents, 5 beams)."
    )


def lengths_table() -> str:
    """Return BLEU by ratio and document length."""
    rows: list[str] = []
    for label, name in LENGTHS.items():
        found = read(name)
        cells = {(row["ratio"], row["max_tokens"]): row for row in found["results"]}
        lengths = sorted({length for _, length in cells})
        if not rows:
            rows = [
                f"| model | ratio | {' | '.join(f'up to {length} tokens' for length in lengths)} |",
                f"|---|---|{'---|' * len(lengths)}",
            ]
        counted = f"{label}, {found['results'][0]['documents']} documents of each length"
        for ratio in sorted({ratio for ratio, _ in cells}):
            bleu = [f"{cells[ratio, length]['bleu']:.1f}" for length in lengths]
            rows.append(f"| {counted} | {f'{ratio:g}' if ratio else 'one vector'} | {' | '.join(bleu)} |")
            counted = ""
    return "\n".join([*rows, "", f"BLEU on dev documents, {found['settings']['beams']} beams."])


def fidelity_table() -> str:
    """Return what a ratio per document saves."""
    lines = []
    for label, name in FIDELITY.items():
        found = read(name, "fidelity")
        each, tokens, needed = found["each"], found["tokens"], found["one_ratio_vectors"]
        text = (
            f"- **{label}**: of {found['documents']} dev documents {each['reached']:.0%} reach a BLEU of "
            f"{found['settings']['fidelity']:g}; together they keep {each['vectors'] / tokens:.3f} vectors per token, at a mean "
            f"fidelity of {each['fidelity']:.3f}. "
        )
        lines.append(
            text + "No single ratio has that mean fidelity."
            if needed is None
            else text
            + f"One ratio for all needs {needed / tokens:.3f} for the same mean: **{found['saved']:.1%}** are saved."
        )
    return "\n".join(lines)


def search_table() -> str:
    """Return the search model and other vectors of its backbone, by task."""
    return _ranking("search", SEARCHED)


def minilm_table() -> str:
    """Return the earlier search model and baselines with as many vectors, by task."""
    return _ranking("search/minilm", RANKED)


def _ranking(folder: str, tasks: dict[str, str]) -> str:
    """Return all systems of some tasks, one row each."""
    found = {task: read(f"{folder}/{task}", "similarity") for task in tasks}
    rows = [f"| system | {' | '.join(tasks.values())} |", f"|---|{'---|' * len(tasks)}"]
    for system in _systems(found):
        rows.append(
            f"| {system} | {' | '.join(_first_measure(results, system) for results in found.values())} |"
        )
    return "\n".join([*rows, "", _counts(found, folder)])


def gather_table() -> str:
    """Return the ways to compute the vectors of a search model's nuggets, at equal training."""
    names = {"token": "the token", "mean": "the mean of its segment", "both": "both, added"}
    names["attention"] = "attention over its segment"
    found = [
        read(f"search/{name}", "similarity") for name in ("cranfield-gather", "cranfield-gather-attention")
    ]
    measured = {row["system"]: row["measures"]["nDCG@10"] for results in found for row in results["results"]}
    rows = ["| a nugget is | dev loss | right among 24 | Cranfield, nDCG@10 |", "|---|---|---|---|"]
    for name, label in names.items():
        lines = (RESULTS / "search" / f"gather-{name}" / "metrics.jsonl").read_text(encoding="utf-8")
        last = [row for row in map(json.loads, lines.splitlines()) if "eval_loss" in row][-1]
        value = measured[name]
        rows.append(
            f"| {label} | {last['eval_loss']:.3f} | {last['eval_accuracy_r0.1']:.1%} | "
            f"{value['mean']:.1f} ({value['low']:.1f} to {value['high']:.1f}) |"
        )
    return "\n".join(rows)


def ablation_table() -> str:
    """Return ablations of layer, feedback, residual and selection, at an equal small budget."""
    found = {task: read(f"ablation/{task}", "similarity") for task in ABLATED}
    rows = [
        f"| model | loss | vectors per document | {' | '.join(ABLATED.values())} |",
        f"|---|---|---|{'---|' * len(ABLATED)}",
    ]
    for system in _systems(found):
        metrics = RESULTS / "ablation" / system.replace(" ", "-") / "metrics.jsonl"
        loss = ""
        if metrics.is_file():
            lines = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
            loss = f"{[line['eval_loss'] for line in lines if 'eval_loss' in line][-1]:.2f}"
        (row,) = (row for row in found["paraphrase"]["results"] if row["system"] == system)
        vectors = "" if row["vectors"] is None else f"{row['vectors']:.1f}"
        cells = [loss, vectors, *(_first_measure(results, system) for results in found.values())]
        rows.append(f"| {system} | {' | '.join(cells)} |")
    return "\n".join([*rows, "", f"Loss in nats per token of the dev bitext. {_counts(found, 'ablation')}"])


def _systems(found: dict[str, dict[str, Any]]) -> list[str]:
    """Return all systems of several results, in order of first appearance."""
    return list(dict.fromkeys(row["system"] for results in found.values() for row in results["results"]))


def _first_measure(results: dict[str, Any], system: str) -> str:
    """Return the main measure of a system with its interval; empty if it was not measured."""
    for row in results["results"]:
        if row["system"] == system:
            value, *_ = row["measures"].values()
            return f"{value['mean']:.1f} ({value['low']:.1f} to {value['high']:.1f})"
    return ""


def _counts(found: dict[str, dict[str, Any]], folder: str) -> str:
    counts = "; ".join(
        f"[{task}](results/{folder}/{task}/similarity.md) {results['queries']} queries, {results['documents']:,} documents"
        for task, results in found.items()
    )
    return f"In brackets 95% intervals over queries: {counts}."


def selection_table() -> str:
    """Return dev losses of an autoencoder by selector, at equal training."""
    curves: dict[str, dict[int, float]] = {}
    for folder in sorted((RESULTS / "selection").iterdir()):
        lines = map(json.loads, (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
        curves[folder.name] = {
            line["step"]: line["eval_loss_r0.1"] for line in lines if "eval_loss_r0.1" in line
        }
    steps = sorted(next(iter(curves.values())))
    rows = [
        f"| a nugget is | {' | '.join(f'after {step} steps' for step in steps)} |",
        f"|---|{'---|' * len(steps)}",
    ]
    for name, curve in sorted(curves.items(), key=lambda item: item[1][steps[-1]]):
        link = f"[{name.replace('-', ' ')}](results/selection/{name}/recipe.toml)"
        rows.append(f"| {link} | {' | '.join(f'{curve[step]:.3f}' for step in steps)} |")
    return "\n".join([*rows, "", "Loss in nats per token on 96 dev documents at r = 0.1; lower is better."])


def claims() -> str:
    """Return the verdicts on the paper's claims."""
    named = [(label, read(*name.rsplit("/", 1))) for label, names in CLAIMED.items() for name in names]
    return claims_table(named)


TABLES: dict[str, Callable[[], str]] = {
    "models": models_table,
    "reconstruct": reconstruction.quality_table,
    "kinds": reconstruction.kinds_table,
    "single-ratio": single_ratio_table,
    "translate": translate_table,
    "tsdae": tsdae_table,
    "lengths": lengths_table,
    "fidelity": fidelity_table,
    "search": search_table,
    "search-minilm": minilm_table,
    "gather": gather_table,
    "ablation": ablation_table,
    "language": language.perplexity_table,
    "language-streaming": language.streaming_table,
    "language-kinds": language.kinds_table,
    "language-longer": language.longer_table,
    "language-longer-kinds": language.longer_kinds_table,
    "selection": selection_table,
    "claims": claims,
    **leaderboard.TABLES,
}


def fill(page: str) -> str:
    """Return a page with its tables regenerated."""
    return fill_marks(page, TABLES)


if __name__ == "__main__":
    language.save_figures()
    for path in PAGES:
        path.write_text(fill(path.read_text(encoding="utf-8")), encoding="utf-8")
