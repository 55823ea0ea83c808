"""Nugget models as ONNX: exported once with torch, and run on a CPU without it."""
