"""python -m tools.curve RUN OUT: copy a run's recipe and metrics.jsonl, and draw its learning curves."""

from __future__ import annotations

import argparse
import json
import re
import shutil
from pathlib import Path

from textnuggets.report.figures import draw_learning, save_figure


def main() -> None:
    """Copy the files of a run and draw its learning curves."""
    parser = argparse.ArgumentParser(prog="python -m tools.curve", description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("out", type=Path)
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    lines = (chosen.run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    save_figure(draw_learning([json.loads(line) for line in lines]), chosen.out / "learning")
    shutil.copy(chosen.run / "metrics.jsonl", chosen.out / "metrics.jsonl")
    recipe = (chosen.run / "recipe.toml").read_text(encoding="utf-8")
    # Replace absolute paths by their last part.
    shown = re.sub(r'"/[^"]*/([^"/]+)"', r'"\1"', recipe)
    (chosen.out / "recipe.toml").write_text(shown, encoding="utf-8")


if __name__ == "__main__":
    main()
