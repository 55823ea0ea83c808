"""python -m tests.onnx.running CODE: run code, as `python -c` does."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    exec(sys.argv[1])
