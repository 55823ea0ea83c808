"""One small example of everything that a command reads, made by the commands themselves and kept in memory.

All paths are relative to the folder `here`, in which every case runs. Files beside it and files that no command is told
about must survive.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from bench.fuzzing.oracle import call
from tests.lm.setting import make_lm
from tests.tiny import CORPUS, tiny_model, tiny_tokenizer
from textnuggets import load

BLOCK = 4096
UNIQUE = re.compile(
    r"[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{32}"
)  # names of files that differ between two worlds
# Files that no command is told to write, in the folder of the command, beside it, and in folders that it writes to.
BYSTANDERS = ("here/notes.txt", "here/engine-manuals/manual.txt", "outside.txt")
GUESTS = ("keep.txt", "engine-manuals/manual.txt", "checkpoint-notes/a.txt", "done/x.txt")

RECIPE = """
[model]
backbone = "backbone"
scorer_layer = 1
ratio = 0.25
[data]
train = ["train.jsonl"]
dev = ["dev.txt"]
max_tokens = 32
cache = "out-cache"
[optimizer]
steps = 2
batch_tokens = 128
lr = 1e-3
schedule = "constant"
[report]
log_every = 1
evaluate_every = 2
documents = 2
bleu_documents = 0
save_every = 1
"""
PLAN = """
[[train]]
name = "a"
recipe = "recipe.toml"
set = ["model.ratio=0.1"]
[[run]]
name = "a/preferences"
command = ["evaluate", "preferences", "{a}", "t.txt", "--out", "{results}/a"]
"""
RESUMED = ("train", "recipe.toml", "--set", "report.save_every=1", "--set", "data.cache=run/cache")


class Stored(NamedTuple):
    """A file without its empty blocks, since the files of a search engine are large and almost empty."""

    size: int
    blocks: list[tuple[int, bytes]]

    @classmethod
    def read(cls, path: Path) -> Stored:
        """Read a file."""
        content = path.read_bytes()
        if len(content) < 64 * BLOCK:
            return cls(len(content), [(0, content)])
        places = range(0, len(content), BLOCK)
        blocks = ((place, content[place : place + BLOCK]) for place in places)
        return cls(len(content), [(place, block) for place, block in blocks if block.strip(b"\0")])

    def write(self, path: Path) -> None:
        """Write the file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            file.truncate(self.size)
            for place, block in self.blocks:
                file.seek(place)
                file.write(block)

    @property
    def is_sparse(self) -> bool:
        """Whether blocks were left out."""
        return self.size != sum(len(block) for _, block in self.blocks)


class World:
    """The examples, by their path below `here`."""

    def __init__(self, root: Path) -> None:
        self.root, self.here = root, root / "here"
        self.clear()
        _make_texts()
        _make_models()
        _make_nuggets_and_indexes()
        _make_runs_and_results()
        files = (path for path in self.here.rglob("*") if path.is_file() and path.name != ".lock")
        found = {path.relative_to(self.here).as_posix(): Stored.read(path) for path in files}
        self.files = dict(sorted(found.items(), key=lambda item: UNIQUE.sub("x", item[0])))

    def clear(self) -> None:
        """Empty the folder and enter it."""
        os.chdir(self.root)
        shutil.rmtree(self.here, ignore_errors=True)
        for name in BYSTANDERS:
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{name} must survive\n")
        os.chdir(self.here)

    def below(self, name: str) -> list[str]:
        """Return the files of a folder, or the file itself."""
        return [path for path in self.files if path == name or path.startswith(name + "/")]


def _run(*arguments: str) -> None:
    done = call(arguments, limit=600)
    assert done.code == 0, f"{arguments}: {done}"


def _make_texts() -> None:
    records = [
        {"id": f"d{i}", "text": text, "year": 1990 + i, "of": {"n": [i]}} for i, text in enumerate(CORPUS)
    ]
    lines = "".join(json.dumps(record) + "\n" for record in records)
    plain = "\n".join(CORPUS) + "\n"
    table = pa.table({"id": [r["id"] for r in records], "text": CORPUS, "year": list(range(5))})
    articles = [
        {
            "sections": [
                {"head": None, "paras": [f"{CORPUS[i % 5]} {i}. " * 4]},
                {"head": "x", "paras": [f"Number {i}. {plain} " * 2]},
            ]
        }
        for i in range(24)
    ]
    pairs = [[text, text.upper()] for text in CORPUS]
    texts: dict[str, str | bytes] = {
        "t.txt": plain,
        "t.jsonl": lines,
        "t.jsonl.gz": gzip.compress(lines.encode()),
        "t.txt.gz": gzip.compress(plain.encode()),
        "docs/a.txt": CORPUS[0],
        "docs/b.md": f"# Title\n\n{CORPUS[1]}\n",
        "docs/more/c.jsonl": lines,
        "docs/d.txt.gz": gzip.compress(CORPUS[2].encode()),
        "shards/1.jsonl": lines,
        "shards/2.txt": plain,
        "recipe.toml": RECIPE,
        "plan.toml": PLAN,
        "train.jsonl": "".join(json.dumps({"text": text}) + "\n" for text in CORPUS * 3),
        "dev.txt": plain,
        "long.txt": plain.replace("\n", " ") * 3,
        "articles.jsonl": "".join(json.dumps(record) + "\n" for record in articles),
        "pairs.jsonl": (json.dumps({"lang": "fr", "pairs": pairs}) + "\n") * 6,
        "bitext.jsonl": "".join(json.dumps({"translation": {"en": a, "fr": b}}) + "\n" for a, b in pairs * 3),
        "pairs.tsv": "".join(f"{a}\t{b}\n" for a, b in pairs * 6),
        "rerank/docs.txt": "".join(f"D{i}\t{text}\n" for i, text in enumerate(CORPUS)),
        "rerank/task.jsonl": "".join(
            json.dumps({"source": f"D{i}", "candidates": ["D3", "D4", "D2"], "answer": i}) + "\n"
            for i in range(2)
        ),
        "retrieve/corpus.jsonl": lines,
        "retrieve/queries.jsonl": '{"id": "q", "text": "the old house"}\n{"id": "r", "text": "rain"}\n',
        "retrieve/qrels.tsv": "query\tdocument\tgrade\nq\td3\t2\nr\td1\t1\nr\td9\t1\n",
    }
    for name, text in texts.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(text.encode() if isinstance(text, str) else text)
    pq.write_table(table, "t.parquet")
    shutil.copy("t.parquet", "docs/e.parquet")


def _make_models() -> None:
    tiny_model("bart").save_pretrained("m")
    tiny_model("bert").save_pretrained("e")
    tiny_model("t5").save_pretrained("c", compact_weights=True)
    tiny_model("bart").backbone.save_pretrained("backbone")
    tiny_tokenizer().save_pretrained("backbone")
    make_lm().save_pretrained("lm")
    make_lm().save_difference("delta", "m", load("m"))


def _make_nuggets_and_indexes() -> None:
    _run("encode", "t.jsonl", "-o", "n.parquet", "--model", "m", "--with-text")
    _run("encode", "shards", "-o", "nuggets", "--model", "e", "--with-text")
    for index in ("idx", "packed"):
        _run("index", "t.jsonl", "-o", index, "--model", "e")
        _run("index", "delete", index, "d4")
    _run("index", "compact", "packed")


def _make_runs_and_results() -> None:
    _run(*RESUMED, "-o", "run")
    few = ("--documents", "2", "--max-tokens", "64")
    _run("evaluate", "preferences", "m", "long.txt", "-o", "results/a", *few)
    _run(
        "evaluate",
        "reconstruction",
        "m",
        "t.txt",
        "-o",
        "results/a",
        "--beams",
        "1",
        "--ratios",
        "0,0.25",
        *few[:2],
    )
    _run("evaluate", "probing", "m", "long.txt", "-o", "results/a", *few)
    _run("evaluate", "fidelity", "m", "t.txt", "-o", "results/a", *few[:2])
    _run("evaluate", "similarity", "bm25", "e", "rerank", "-o", "results/b")
    _run("lm", "evaluate", "lm", "t.txt", "--out", "results/c")
    shutil.copytree("results", "finished/results")
    marks = {"a": ("train", "recipe.toml", "--set", "model.ratio=0.1", "--out", "finished/runs/a")}
    marks["a~preferences"] = (
        "evaluate",
        "preferences",
        "finished/runs/a/best",
        "t.txt",
        "--out",
        "finished/results/a",
    )
    for name, arguments in marks.items():
        Path("finished/done").mkdir(exist_ok=True)
        Path("finished/done", name).write_text("\n".join(arguments))
