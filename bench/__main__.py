"""python -m bench TEXTS: measure speed ratios, print them and write them to bench/results/.

TEXTS is a file of real paragraphs in a format of `textnuggets encode`. Backbones are hub ids or folders.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from transformers.utils import logging

from bench import decoding, encoding, evidence, exporting, generation, memory, searching, serving, training
from textnuggets.evaluate.tasks import read_task
from textnuggets.io.documents import read_documents

PARTS = ("encode", "sentence-transformers", "reconstruct", "memory", "train", "generate", "maxsim")
# Run only if named, since they need a trained model or a task, or take long.
FURTHER = ("onnx", "search", "evidence", "serve", "endurance", "fuzz", "fuzz-inputs")


def main() -> None:
    """Run the benchmarks."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("texts", help="real paragraphs: .txt, .jsonl or .parquet")
    parser.add_argument("--marian", default="Helsinki-NLP/opus-mt-fr-en")
    parser.add_argument("--minilm", default="sentence-transformers/all-MiniLM-L6-v2")
    parser.add_argument("--source", default=None, help="description of the texts for the results files")
    parser.add_argument("--limit", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--model", default="search", help="a trained model, for onnx, search, evidence and serve"
    )
    parser.add_argument("--task", help="the folder of a retrieval task, for search")
    parser.add_argument("--grades", default="1=4,2=3,3=2,4=1", help="mapping of the task's grades")
    parser.add_argument(
        "--questions", help="JSON lines with query, positive (a passage) and answers (in it), for evidence"
    )
    parser.add_argument("--joined", type=int, default=10, help="passages per document, for evidence")
    parser.add_argument("--only", choices=(*PARTS, *FURTHER), action="append")
    chosen = parser.parse_args()
    if "evidence" in (chosen.only or ()) and not chosen.questions:
        parser.error("--only evidence needs --questions.")
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    texts = [document.text for document in read_documents(chosen.texts)][: chosen.limit]
    source = chosen.source or Path(chosen.texts).name
    parts = chosen.only or PARTS
    if "encode" in parts:
        # The sides differ by only a few per cent, so use many short rounds instead of few long ones.
        encoding.bare_encoder(chosen.marian, texts[:160], source, 4 * chosen.rounds)
        encoding.bare_encoder(chosen.minilm, texts[:320], source, 4 * chosen.rounds)
    if "sentence-transformers" in parts:
        encoding.sentence_transformers(chosen.minilm, texts, source, chosen.rounds)
    if "reconstruct" in parts:
        decoding.bare_generate(chosen.marian, texts, source, chosen.rounds)
    if "memory" in parts:
        memory.flat_memory()
    if "train" in parts:
        training.plain_seq2seq(chosen.marian, chosen.texts, source, chosen.rounds)
    if "generate" in parts:
        generation.cost_of_context(chosen.marian, chosen.rounds)
    if "maxsim" in parts:
        searching.maxsim_against_sentence_transformers(chosen.rounds)
    if "onnx" in parts:
        exporting.onnx_against_torch(chosen.model, texts, source, chosen.rounds)
    if "search" in parts:
        meaning = {int(old): int(new) for old, new in (part.split("=") for part in chosen.grades.split(","))}
        task = read_task(chosen.task, grades=meaning)
        searching.index_of_passages(chosen.model, chosen.minilm, task, texts, source)
    if "evidence" in parts:
        evidence.evidence(chosen.model, chosen.minilm, chosen.questions, texts, chosen.joined)
    if "serve" in parts:
        serving.batching_under_load(chosen.model, texts, source)
    if "endurance" in parts:
        serving.endurance(chosen.model, texts, source)
    if "fuzz" in parts:
        serving.fuzz(chosen.model, texts, source)
    if "fuzz-inputs" in parts:
        from bench.fuzzing.run import fuzz_inputs  # it disables the Hub, so it is not imported for the others

        fuzz_inputs()


if __name__ == "__main__":
    main()
