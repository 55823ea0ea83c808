"""python -m bench.fuzzing --seed 1 --cases 0:1000: run cases and print those that went wrong; --case 17 runs one."""

from __future__ import annotations

import argparse

import torch
from transformers.utils import logging

from bench.fuzzing.run import run_here

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.fuzzing", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", default="0:1000", help="first and last number, such as 0:1000")
    parser.add_argument("--case", type=int, help="a single number")
    parser.add_argument("--json", action="store_true", help="print every outcome as one line")
    chosen = parser.parse_args()
    first, _, last = chosen.cases.partition(":")
    numbers = range(int(first), int(last)) if chosen.case is None else range(chosen.case, chosen.case + 1)
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    run_here(chosen.seed, numbers, chosen.json)
