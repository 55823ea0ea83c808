"""python docs/keys.py: write the table of recipe keys into docs/training.md."""

from __future__ import annotations

import re
from pathlib import Path

from textnuggets.train.recipe_io import describe_keys

PAGE = Path(__file__).parent / "training.md"


def keys_table() -> str:
    """Return a Markdown table of all keys with their defaults and meanings."""
    rows = ["| key | default | meaning |", "|---|---|---|"]
    rows += [
        f"| `{key}` | {f'`{default}`' if default else ''} | {meaning} |"
        for key, default, meaning in describe_keys()
    ]
    return "\n".join(rows)


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    filled = re.sub(
        r"(<!-- keys:start -->\n).*?(<!-- keys:end -->)",
        lambda m: f"{m[1]}{keys_table()}\n{m[2]}",
        text,
        flags=re.DOTALL,
    )
    PAGE.write_text(filled, encoding="utf-8")
