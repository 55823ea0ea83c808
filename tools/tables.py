"""python -m tools.tables: put figures of the models that ship into the README, between their marks."""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
README, RESULTS = ROOT / "README.md", ROOT / "docs" / "results"


def default_table() -> str:
    """What the default model gives back, on the dev and test texts."""
    found = {
        part: json.loads((RESULTS / "default" / part / "reconstruction.json").read_text(encoding="utf-8"))
        for part in ("dev", "test")
    }
    by_ratio = {part: {row["ratio"]: row for row in results["results"]} for part, results in found.items()}
    rows = [
        "| ratio | BLEU, dev / test | word for word | token accuracy |",
        "|---|---|---|---|",
    ]
    for ratio in sorted(by_ratio["dev"].keys() & by_ratio["test"].keys()):
        dev, test = by_ratio["dev"][ratio], by_ratio["test"][ratio]
        rows.append(
            f"| {ratio:g} | {dev['bleu']:.1f} / {test['bleu']:.1f} | {dev['exact']:.0%} / {test['exact']:.0%} | "
            f"{dev['token_accuracy']:.1%} / {test['token_accuracy']:.1%} |"
        )
    counts = {part: results["results"][0]["documents"] for part, results in found.items()}
    settings = found["dev"]["settings"]
    rows += [
        "",
        f"Wikipedia text it was not trained on, documents of up to {found['dev']['results'][0]['max_tokens']} tokens "
        f"({counts['dev']} dev, {counts['test']} test), {settings['beams']} beams: "
        "[dev](docs/results/default/dev/reconstruction.json), [test](docs/results/default/test/reconstruction.json).",
    ]
    return "\n".join(rows)


def fill(readme: str) -> str:
    """The README with the table as it should be."""
    return re.sub(
        r"(<!-- default:start -->\n).*?(<!-- default:end -->)",
        lambda match: f"{match[1]}{default_table()}\n{match[2]}",
        readme,
        flags=re.DOTALL,
    )


if __name__ == "__main__":
    README.write_text(fill(README.read_text(encoding="utf-8")), encoding="utf-8")
