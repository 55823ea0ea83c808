"""python -m tests.onnx.blocking MODULE ARGUMENTS: run a module where torch and transformers cannot be imported."""

from __future__ import annotations

import runpy
import sys

BLOCKED = ("torch", "transformers")


class Blocking:
    def find_spec(self, name, *_):
        if name.split(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"{name} must not be imported", name=name)


if __name__ == "__main__":
    sys.meta_path.insert(0, Blocking())
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
