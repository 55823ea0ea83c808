"""Damaged model folders: every way to load them gives one line, never a traceback or a model that does not work."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import textnuggets
from tests.lm.setting import make_lm
from tests.tiny import CORPUS, tiny_model
from textnuggets import NuggetLM, NuggetModel
from textnuggets.errors import CheckpointError

DELETE = object()


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """A folder of every kind: plain, compact, sharded, an encoder, a language model, and the difference of one."""
    root = tmp_path_factory.mktemp("whole")
    model = tiny_model()
    model.save_pretrained(root / "plain")
    model.save_pretrained(root / "compact", compact_weights=True)
    model.save_pretrained(root / "sharded", max_shard_size="100KB")
    tiny_model("bert").save_pretrained(root / "encoder")
    lm = make_lm()
    lm.save_pretrained(root / "lm")
    lm.save_difference(root / "delta", str(root / "plain"), model)
    return root


def text(file, content):
    """Replace the content of a file."""
    return lambda folder: (folder / file).write_text(content)


def cut(file, share):
    """Keep a share of a file."""

    def damage(folder):
        data = (folder / file).read_bytes()
        (folder / file).write_bytes(data[: int(len(data) * share)])

    return damage


def remove(file):
    return lambda folder: (folder / file).unlink()


def setting(file, *path_and_value):
    """Set a value of a JSON file, given the keys that lead to it; DELETE removes it."""
    *path, last, value = path_and_value

    def damage(folder):
        data = json.loads((folder / file).read_text())
        part = data
        for key in path:
            part = part[key]
        if value is DELETE:
            del part[last]
        else:
            part[last] = value
        (folder / file).write_text(json.dumps(data))

    return damage


def tensors(file, edit):
    """Edit the tensors of a safetensors file."""

    def damage(folder):
        stored = load_file(folder / file)
        edit(stored)
        save_file(stored, folder / file, metadata={"format": "pt"})

    return damage


def fill(name, value):
    def edit(stored):
        stored[name] = torch.full_like(stored[name], value)

    return edit


def shape(name, *size):
    return lambda stored: stored.update({name: torch.zeros(*size)})


def elsewhere(index, key, make):
    """Let an index of weights name a file outside the folder, which exists."""

    def damage(folder):
        data = json.loads((folder / index).read_text())
        name = next(iter(data[key].values()))
        outside = folder.parent / "outside.safetensors"
        shutil.move(folder / name, outside)
        data[key] = {k: make(outside) if file == name else file for k, file in data[key].items()}
        (folder / index).write_text(json.dumps(data))

    return damage


MODEL, TOKENIZER, INDEX = "model.safetensors", "tokenizer.json", "model.safetensors.index.json"
PART, COMPACT, GENERATION = "compact-1-of-1.safetensors", "compact.json", "generation_config.json"
CONFIG, OUT = "config.json", "scorer.out.weight"
DAMAGE = {
    "plain": {
        "tokenizer missing": remove(TOKENIZER),
        "tokenizer empty": text(TOKENIZER, ""),
        "tokenizer cut": cut(TOKENIZER, 0.5),
        "tokenizer a list": text(TOKENIZER, "[]"),
        "tokenizer without model": setting(TOKENIZER, "model", DELETE),
        "tokenizer with wrong vocabulary": setting(TOKENIZER, "model", "vocab", 7),
        "tokenizer without vocabulary": setting(TOKENIZER, "model", "vocab", []),
        "tokenizer of unknown model": setting(TOKENIZER, "model", "type", "Magic"),
        "tokenizer without special tokens": setting(TOKENIZER, "post_processor", None),
        "special token without its name": setting(
            TOKENIZER, "post_processor", "special_tokens", "</s>", "tokens", []
        ),
        "tokenizer that panics": setting(TOKENIZER, "post_processor", "special_tokens", {}),
        "tokenizer too large": setting(
            TOKENIZER, "model", "vocab", [[f"<{i}>" if i > 3 else f"s{i}", -1.0] for i in range(5000)]
        ),
        "tokenizer config cut": cut("tokenizer_config.json", 0.5),
        "tokenizer config a list": text("tokenizer_config.json", "[]"),
        "tokenizer of a strange class": setting("tokenizer_config.json", "tokenizer_class", 5),
        "tokenizer with a wrong token": setting("tokenizer_config.json", "eos_token", 5),
        "config missing": remove(CONFIG),
        "config empty": text(CONFIG, ""),
        "config cut": cut(CONFIG, 0.5),
        "config a list": text(CONFIG, "[]"),
        "config null": text(CONFIG, "null"),
        "config not UTF-8": lambda folder: (folder / CONFIG).write_bytes(b"\xff\xfe{}"),
        "config nested too deeply": text(CONFIG, "[" * 100_000),
        "model type missing": setting(CONFIG, "model_type", DELETE),
        "model type a list": setting(CONFIG, "model_type", ["nugget"]),
        "no backbone": setting(CONFIG, "backbone", None),
        "backbone a string": setting(CONFIG, "backbone", "bart"),
        "backbone without type": setting(CONFIG, "backbone", "model_type", DELETE),
        "backbone of unknown type": setting(CONFIG, "backbone", "model_type", "magic"),
        "backbone of unsupported type": setting(CONFIG, "backbone", "model_type", "gpt2"),
        "width a string": setting(CONFIG, "backbone", "d_model", "32"),
        "width zero": setting(CONFIG, "backbone", "d_model", 0),
        "width of another model": setting(CONFIG, "backbone", "d_model", 64),
        "vocabulary of another size": setting(CONFIG, "backbone", "vocab_size", 5),
        "vocabulary enormous": setting(CONFIG, "backbone", "vocab_size", 10**12),
        "layers negative": setting(CONFIG, "backbone", "encoder_layers", -1),
        "layers null": setting(CONFIG, "backbone", "encoder_layers", None),
        "heads that do not divide": setting(CONFIG, "backbone", "encoder_attention_heads", 5),
        "padding outside": setting(CONFIG, "backbone", "pad_token_id", 10**6),
        "activation unknown": setting(CONFIG, "backbone", "activation_function", "magic"),
        "ratio a string": setting(CONFIG, "ratio", "0.1"),
        "ratio NaN": setting(CONFIG, "ratio", float("nan")),
        "selector unknown": setting(CONFIG, "selector", "magic"),
        "selector a list": setting(CONFIG, "selector", ["learned"]),
        "layer too high": setting(CONFIG, "scorer_layer", 99),
        "feedback a string": setting(CONFIG, "feedback", "yes"),
        "window a list": setting(CONFIG, "window", [64]),
        "punctuation a string": setting(CONFIG, "punctuation_ids", "ab"),
        "punctuation fractions": setting(CONFIG, "punctuation_ids", [1.5]),
        "objective a list": setting(CONFIG, "objective", ["autoencode"]),
        "weights missing": remove(MODEL),
        "weights empty": text(MODEL, ""),
        "weights cut": cut(MODEL, 0.5),
        "weights lack a part": tensors(MODEL, lambda stored: stored.pop(OUT)),
        "weights of another shape": tensors(MODEL, shape(OUT, 3, 3)),
        "weights NaN": tensors(MODEL, fill(OUT, float("nan"))),
        "weights infinite": tensors(MODEL, fill("backbone.model.shared.weight", float("inf"))),
        "generation config missing": remove(GENERATION),
        "generation config cut": cut(GENERATION, 0.5),
        "generation config a list": text(GENERATION, "[]"),
        "start token a string": setting(GENERATION, "decoder_start_token_id", "x"),
        "end token a string": setting(GENERATION, "eos_token_id", "x"),
        "bad words a string": setting(GENERATION, "bad_words_ids", "x"),
        "several answers": setting(GENERATION, "num_return_sequences", 2),
    },
    "compact": {
        "index empty": text(COMPACT, ""),
        "index a list": text(COMPACT, "[]"),
        "tensors a list": setting(COMPACT, "tensors", ["a"]),
        "file a number": setting(COMPACT, "tensors", OUT, 5),
        "file null": setting(COMPACT, "tensors", OUT, None),
        "file missing": remove(PART),
        "file cut": cut(PART, 0.5),
        "file empty": text(PART, ""),
        "file outside": elsewhere(COMPACT, "tensors", lambda path: f"../{path.name}"),
        "file absolute": elsewhere(COMPACT, "tensors", str),
        "file the folder": setting(COMPACT, "tensors", OUT, "."),
        "scales missing": tensors(PART, lambda stored: stored.pop(f"{OUT}::scale")),
        "scales of another shape": tensors(PART, shape(f"{OUT}::scale", 3, 5)),
        "scales NaN": tensors(PART, fill(f"{OUT}::scale", float("nan"))),
        "tensor missing": tensors(PART, lambda stored: stored.pop("value.weight")),
    },
    "sharded": {
        "index empty": text(INDEX, ""),
        "index a list": text(INDEX, "[]"),
        "index without map": setting(INDEX, "weight_map", DELETE),
        "file a number": setting(INDEX, "weight_map", OUT, 5),
        "file missing": lambda folder: next(folder.glob("model-*.safetensors")).unlink(),
        "file outside": elsewhere(INDEX, "weight_map", lambda path: f"../{path.name}"),
        "file absolute": elsewhere(INDEX, "weight_map", str),
    },
    "encoder": {
        "tokenizer missing": remove(TOKENIZER),
        "width of another model": setting(CONFIG, "backbone", "hidden_size", 64),
        "positions a string": setting(CONFIG, "backbone", "max_position_embeddings", "x"),
        "positions of another size": setting(CONFIG, "backbone", "max_position_embeddings", 8),
        "weights NaN": tensors(MODEL, fill("value.weight", float("nan"))),
    },
    "lm": {
        "segment a string": setting(CONFIG, "segment", "x"),
        "segment too long": setting(CONFIG, "segment", 10**6),
        "memory unknown": setting(CONFIG, "memory", "magic"),
        "nugget a string": setting(CONFIG, "nugget", "x"),
        "no nugget": setting(CONFIG, "nugget", None),
        "base a number": setting(CONFIG, "base", 5),
        "base missing": setting(CONFIG, "base", "/no/such/folder"),
        "weights NaN": tensors(MODEL, fill("ages.weight", float("nan"))),
        "tokenizer missing": remove(TOKENIZER),
        "tokenizer cut": cut(TOKENIZER, 0.5),
        "generation config a list": text(GENERATION, "[]"),
        "bad words a string": setting(GENERATION, "bad_words_ids", "x"),
    },
    "delta": {
        "base null": setting(CONFIG, "base", None),
        "fingerprint of another model": setting(CONFIG, "base_weights", "0" * 32),
        "fingerprint a number": setting(CONFIG, "base_weights", 5),
        "nugget null": setting(CONFIG, "nugget", None),
        "index missing": remove(COMPACT),
        "index cut": cut(COMPACT, 0.5),
        "file cut": cut(PART, 0.5),
        "file outside": elsewhere(COMPACT, "tensors", lambda path: f"../{path.name}"),
        "weights of another shape": tensors(PART, shape("ages.weight::scale", 3, 5)),
        "weights NaN": tensors(PART, fill("ages.weight::scale", float("nan"))),
        "weights unknown": setting(COMPACT, "tensors", "magic", PART),
    },
}
CASES = [
    pytest.param(kind, damage, id=f"{kind}: {name}")
    for kind, cases in DAMAGE.items()
    for name, damage in cases.items()
]


def copy(folders: Path, kind: str, to: Path) -> Path:
    shutil.copytree(folders / kind, to / "model")
    return to / "model"


@pytest.mark.parametrize(("kind", "damage"), CASES)
def test_a_damaged_folder_is_refused_on_one_line_by_every_loader(folders, kind, damage, tmp_path, run):
    folder = copy(folders, kind, tmp_path)
    damage(folder)
    is_lm = kind in ("lm", "delta")
    for load in (textnuggets.load, NuggetLM.from_pretrained if is_lm else NuggetModel.from_pretrained):
        with pytest.raises(CheckpointError) as raised:
            load(folder)
        assert str(folder) in str(raised.value)
        assert "\n" not in str(raised.value)
    (tmp_path / "t.txt").write_text(CORPUS[0])
    command = ["lm", "generate", folder, "--prompt"] if is_lm else ["highlight", "--model", folder]
    done = run(*command, tmp_path / "t.txt")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("error: ")
    assert done.stdout == ""


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_whole_folder_loads(folders, kind, tmp_path):
    model = textnuggets.load(copy(folders, kind, tmp_path))
    if kind in ("lm", "delta"):
        assert model.generate(CORPUS[0], max_new_tokens=2) is not None
    else:
        assert len(model.encode(CORPUS[0])) > 0


def test_there_are_enough_cases():
    assert len(CASES) >= 65
