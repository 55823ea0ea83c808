"""python -m bench.table: put the results into the README, between its bench marks."""

from __future__ import annotations

import json
import re

from bench.measuring import RESULTS

README = RESULTS.parent.parent / "README.md"
ORDER = (
    "encode-vs-bare-marian",
    "encode-vs-bare-bert",
    "encode-vs-sentence-transformers",
    "reconstruct-vs-generate",
    "encode-memory",
    "train-vs-seq2seq",
    "train-vs-seq2seq-sampled",
)


def results_table() -> str:
    """A Markdown table of what `bench/results/` holds."""
    rows = ["| what | ratio | range | target |", "|---|---|---|---|"]
    for name in ORDER:
        result = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
        spread = f"{result['ratio_min']} to {result['ratio_max']}" if "ratio_min" in result else ""
        rows.append(
            f"| [{name}](bench/results/{name}.json): {result['claim']} | {result['ratio']}x | {spread} | {result['target']} |"
        )
    threads = result["machine"]["torch_threads"]
    rows += [
        "",
        f"Both sides measured in one run on {threads} CPU threads, untrained nugget models; the median of paired rounds. `python -m bench TEXTS` repeats it.",
    ]
    return "\n".join(rows)


def fill(readme: str) -> str:
    """The README with the table as it should be."""
    return re.sub(
        r"(<!-- bench:start -->\n).*?(<!-- bench:end -->)",
        lambda match: f"{match[1]}{results_table()}\n{match[2]}",
        readme,
        flags=re.DOTALL,
    )


if __name__ == "__main__":
    README.write_text(fill(README.read_text(encoding="utf-8")), encoding="utf-8")
