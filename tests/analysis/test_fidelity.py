"""Encoding to a target fidelity."""

from __future__ import annotations

import pandas as pd
import pytest

from tests.tiny import CORPUS, tiny_model
from textnuggets.analysis.fidelity import LADDER, encode_to_fidelity
from textnuggets.bulk.encode import encode_to_parquet
from textnuggets.errors import ConfigError, TextnuggetsWarning
from textnuggets.io.documents import Document
from textnuggets.model.parquet import load_nuggets

UNSEEN = "The dogs read the letter near the bridge, until morning."


def test_a_text_gets_the_lowest_ratio_that_reaches_the_fidelity(copier):
    for item, text in zip(encode_to_fidelity(copier, CORPUS, 0.95), CORPUS, strict=True):
        assert item.fidelity >= 0.95
        assert copier.reconstruct(item.nuggets, num_beams=1) == text or item.fidelity < 1
        for lower in LADDER[: LADDER.index(item.ratio)]:
            assert copier.reconstruct(copier.encode(text, ratio=lower), num_beams=1) != text


def test_a_text_that_never_reaches_the_fidelity_gets_its_best_ratio(copier):
    (found,) = encode_to_fidelity(copier, [UNSEEN], 1.0)
    assert found.fidelity < 1
    assert found.ratio in LADDER


def test_ratio_and_fidelity_are_stored_with_the_nuggets(copier, tmp_path):
    documents = [Document(str(i), text) for i, text in enumerate([*CORPUS, ""])]
    out = tmp_path / "out.parquet"
    encode_to_parquet(copier, documents, out, name="copier", fidelity=0.95, dtype="float16")
    frame = pd.read_parquet(out)
    assert (frame.fidelity >= 0.95).all()
    assert set(frame.ratio) <= set(LADDER)
    _, nuggets = load_nuggets(out)
    assert len(nuggets) == 6
    assert copier.reconstruct(nuggets[-1]) == ""


def test_texts_below_the_fidelity_are_reported(copier, tmp_path):
    documents = [Document("seen", CORPUS[0]), Document("unseen", UNSEEN), Document("other", UNSEEN[9:])]
    out = tmp_path / "out.parquet"
    with pytest.warns(TextnuggetsWarning, match=r"fidelity 0\.95 was not reached by 2 of 3 texts") as given:
        encode_to_parquet(copier, documents, out, name="copier", fidelity=0.95)
    frame = pd.read_parquet(out).set_index("id")
    missed = frame.fidelity[["unseen", "other"]]
    assert frame.fidelity["seen"] >= 0.95 > missed.max()
    (warning,) = given
    assert f"{missed.mean():.2f} on average" in str(warning.message)
    assert f"({missed.idxmin()!r}) {missed.min():.2f}" in str(warning.message)
    # Resuming the finished file warns again.
    with pytest.warns(TextnuggetsWarning, match="not reached by 2 of 3"):
        encode_to_parquet(copier, documents, out, name="copier", fidelity=0.95, resume=True)


def test_an_impossible_fidelity_is_an_error(copier, tmp_path):
    with pytest.raises(ConfigError, match="a BLEU in"):
        encode_to_fidelity(copier, CORPUS, 95)
    with pytest.raises(ConfigError, match="not both"):
        encode_to_parquet(copier, [], tmp_path / "a.parquet", name="x", fidelity=0.9, ratio=0.1)
    with pytest.raises(ConfigError, match="takes no ratio"):
        encode_to_fidelity(tiny_model(selector="all_tokens"), CORPUS, 0.9)
    with pytest.raises(ConfigError, match="has no decoder"):
        encode_to_fidelity(tiny_model("bert"), CORPUS, 0.9)
