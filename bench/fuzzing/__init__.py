"""Fuzzer of everything that the command line reads: files, folders and options."""

import os

# Before huggingface_hub is imported, which reads it once.
os.environ["HF_HUB_OFFLINE"] = "1"
