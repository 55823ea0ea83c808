"""Loading unpickles nothing: a folder with pickled weights is refused, and what the pickle would run is not run."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch

import textnuggets
from tests.tiny import CORPUS, tiny_model
from textnuggets import NuggetLM, NuggetModel
from textnuggets.errors import TextnuggetsError
from textnuggets.model.token_encoder import load_token_encoder
from textnuggets.model.vocabulary import trim


class Touch:
    """An object that creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (Path(self.path),)


@pytest.fixture
def pickled(tmp_path):
    """A nugget model and a backbone with pickled weights, both ordinary and hostile, in place of safetensors."""
    model = tiny_model("bart")
    model.save_pretrained(tmp_path / "nugget")
    model.backbone.save_pretrained(tmp_path / "backbone")
    model.tokenizer.save_pretrained(tmp_path / "backbone")
    for folder, weights in (("nugget", model), ("backbone", model.backbone)):
        for file in (tmp_path / folder).glob("*.safetensors"):
            file.unlink()
        torch.save(weights.state_dict(), tmp_path / folder / "pytorch_model.bin")
        for name in ("model.bin", "model.pkl", "training_args.bin", "tokenizer.pkl"):
            (tmp_path / folder / name).write_bytes(pickle.dumps(Touch(tmp_path / "ran")))
    return tmp_path


def test_the_hostile_pickle_would_run(pickled):
    pickle.loads((pickled / "nugget" / "model.pkl").read_bytes())
    assert (pickled / "ran").exists()


@pytest.mark.parametrize("hostile", [False, True])
@pytest.mark.parametrize(
    ("folder", "load"),
    [
        ("nugget", textnuggets.load),
        ("nugget", NuggetModel.from_pretrained),
        ("nugget", NuggetLM.from_pretrained),
        ("backbone", NuggetModel.from_backbone),
        ("backbone", load_token_encoder),
        ("backbone", lambda name: trim(name, CORPUS)),
    ],
)
def test_pickled_weights_are_refused_in_every_way_to_load(pickled, folder, load, hostile):
    if hostile:
        (pickled / folder / "model.pkl").rename(pickled / folder / "pytorch_model.bin")
    with pytest.raises(TextnuggetsError):
        load(str(pickled / folder))
    assert not (pickled / "ran").exists()


def test_no_module_imports_pickle_or_unpickles_with_torch():
    for path in Path(textnuggets.__file__).parent.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        assert "import pickle" not in source, path
        assert "torch.load(" not in source, path
