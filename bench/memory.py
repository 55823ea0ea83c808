"""Peak memory of `textnuggets encode` on ten times as many documents."""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.measuring import record
from tests.tiny import tiny_model

FEW, MANY = 5_000, 50_000
# The child reports its own peak from /proc (Linux), since ru_maxrss of getrusage survives the exec and would start at
# the parent's size.
CHILD = """
import sys
from pathlib import Path
from textnuggets.cli import main
try:
    main()
finally:
    status = Path("/proc/self/status").read_text()
    print(status.split("VmHWM:")[1].split()[0], file=sys.stderr)
"""


def flat_memory() -> None:
    """Compare the peak memory of two corpus sizes, with a tiny model so that documents would dominate."""
    rng = random.Random(0)
    words = [
        "the",
        "cat",
        "sat",
        "on",
        "a",
        "mat",
        "and",
        "saw",
        "some",
        "old",
        "red",
        "house",
        "near",
        "water",
        ",",
        "then",
        "went",
        "home",
        ".",
    ]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tiny_model("bart").save_pretrained(folder / "model")
        peaks = {}
        for count in (FEW, MANY):
            texts = folder / f"{count}.txt"
            with texts.open("w") as out:
                for _ in range(count):
                    print(" ".join(rng.choices(words, k=rng.randint(20, 60))), file=out)
            command = [
                sys.executable,
                "-c",
                CHILD,
                "encode",
                str(texts),
                "-o",
                str(folder / f"{count}.parquet"),
            ]
            run = subprocess.run(
                [*command, "--model", str(folder / "model")], check=True, capture_output=True, text=True
            )
            peaks[count] = int(run.stderr.split()[-1])
    record(
        "encode-memory",
        f"the peak memory with {FEW:,} documents, when there are {MANY:,}",
        "<= 1.2",
        {"model": "tiny bart", "words": "20 to 60 a document", "seed": 0},
        {"ratio": round(peaks[MANY] / peaks[FEW], 3), "peak_kib": peaks},
    )
