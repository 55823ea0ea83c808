"""Encoding into a file: written atomically and resumable."""

from __future__ import annotations

import json

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow.parquet as pq
import pytest
import torch

from tests.tiny import CORPUS, WIDTH, tiny_model
from textnuggets import __version__, load, load_nuggets, save_nuggets
from textnuggets.bulk import encode as bulk
from textnuggets.bulk.encode import encode_to_parquet
from textnuggets.errors import InputError
from textnuggets.io.documents import Document
from textnuggets.model.parquet import iter_nuggets, read_metadata

DOCUMENTS = [Document(f"d{i}", CORPUS[i % 5][: 10 + i]) for i in range(25)]


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(bulk, "PART_TEXTS", 8)


def interrupted(documents, after):
    for number, document in enumerate(documents):
        if number == after:
            raise KeyboardInterrupt
        yield document


def same(a, b):
    return pq.read_table(a).equals(pq.read_table(b), check_metadata=True)


def test_rows_are_what_encode_gives(model, tmp_path):
    out = tmp_path / "a.parquet"
    assert encode_to_parquet(model, iter(DOCUMENTS), out, name="m", ratio=0.3, with_text=True) == 25
    ids, stored = load_nuggets(out)
    assert ids == [d.id for d in DOCUMENTS]
    for a, b in zip(stored, model.encode([d.text for d in DOCUMENTS], ratio=0.3), strict=True):
        np.testing.assert_allclose(a.vectors, b.vectors, atol=1e-5)
        assert a.tokens == b.tokens
        for name in ("positions", "spans", "windows", "segments"):
            assert getattr(a, name).tolist() == getattr(b, name).tolist()
    assert pq.read_table(out).column("text").to_pylist() == [d.text for d in DOCUMENTS]
    about = read_metadata(out)
    assert (about["model"], about["ratio"], about["version"]) == ("m", 0.3, __version__)
    assert list(tmp_path.iterdir()) == [out]


def test_an_interrupted_run_resumes_to_the_same_content(model, tmp_path):
    whole, broken = tmp_path / "whole.parquet", tmp_path / "broken.parquet"
    encode_to_parquet(model, iter(DOCUMENTS), whole, name="m")
    with pytest.raises(KeyboardInterrupt):
        encode_to_parquet(model, interrupted(DOCUMENTS, 19), broken, name="m")
    assert not broken.exists()
    assert len(list((tmp_path / "broken.parquet.partial").glob("part-*.parquet"))) == 2
    assert encode_to_parquet(model, iter(DOCUMENTS), broken, name="m", resume=True) == 25
    assert same(whole, broken)
    assert not (tmp_path / "broken.parquet.partial").exists()
    # Running it again on the complete file does nothing.
    assert encode_to_parquet(model, iter(DOCUMENTS), broken, name="m", resume=True) == 25


def test_resuming_does_not_encode_again_what_is_done(model, tmp_path, monkeypatch):
    out = tmp_path / "a.parquet"
    with pytest.raises(KeyboardInterrupt):
        encode_to_parquet(model, interrupted(DOCUMENTS, 19), out, name="m")
    encoded = []
    original = bulk.encode_stream

    def watched(model, texts, *rest):
        encoded.extend(texts)
        return original(model, texts, *rest)

    monkeypatch.setattr(bulk, "encode_stream", watched)
    encode_to_parquet(model, iter(DOCUMENTS), out, name="m", resume=True)
    assert encoded == [d.text for d in DOCUMENTS[16:]]


def test_a_new_run_never_overwrites_an_interrupted_one(model, tmp_path):
    out = tmp_path / "a.parquet"
    with pytest.raises(KeyboardInterrupt):
        encode_to_parquet(model, interrupted(DOCUMENTS, 9), out, name="m")
    with pytest.raises(InputError, match="add --resume to continue it"):
        encode_to_parquet(model, iter(DOCUMENTS), out, name="m")
    with pytest.raises(InputError, match=r"started with ratio 0\.25, not ratio 0\.5"):
        encode_to_parquet(model, iter(DOCUMENTS), out, name="m", ratio=0.5, resume=True)
    changed = [Document("d0", "other"), *DOCUMENTS[1:]]
    with pytest.raises(InputError, match="texts 1 to 8 differ from"):
        encode_to_parquet(model, iter(changed), out, name="m", resume=True)


def test_resuming_a_finished_file_of_another_model_is_an_error(model, tmp_path):
    out = tmp_path / "a.parquet"
    encode_to_parquet(model, iter(DOCUMENTS), out, name="m")
    with pytest.raises(InputError, match="is complete, but was created with model 'm'"):
        encode_to_parquet(model, iter(DOCUMENTS), out, name="other", resume=True)


def test_resuming_a_finished_file_of_other_texts_columns_or_weights_is_an_error(model, tmp_path):
    out = tmp_path / "a.parquet"
    encode_to_parquet(model, iter(DOCUMENTS), out, name="m")
    with pytest.raises(InputError, match="complete, but holds other texts"):
        encode_to_parquet(model, iter(DOCUMENTS[1:]), out, name="m", resume=True)
    with pytest.raises(InputError, match="columns"):
        encode_to_parquet(model, iter(DOCUMENTS), out, name="m", resume=True, with_text=True)
    other = tiny_model("bart")
    torch.nn.init.ones_(other.scorer.out.weight)
    with pytest.raises(InputError, match="weights"):
        encode_to_parquet(other, iter(DOCUMENTS), out, name="m", resume=True)


def flip(data):
    place = len(data) // 4  # inside the vectors, which are most of the file
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


@pytest.mark.parametrize("damage", [lambda _: b"PAR1", flip])
def test_a_damaged_part_is_encoded_again(model, tmp_path, damage):
    out, whole = tmp_path / "a.parquet", tmp_path / "whole.parquet"
    with pytest.raises(KeyboardInterrupt):
        encode_to_parquet(model, interrupted(DOCUMENTS, 19), out, name="m")
    part = tmp_path / "a.parquet.partial" / "part-000001.parquet"
    part.write_bytes(damage(part.read_bytes()))
    assert encode_to_parquet(model, iter(DOCUMENTS), out, name="m", resume=True) == 25
    encode_to_parquet(model, iter(DOCUMENTS), whole, name="m")
    assert same(out, whole)


def test_resuming_a_finished_file_that_is_damaged_is_an_error(model, tmp_path):
    out = tmp_path / "a.parquet"
    encode_to_parquet(model, iter(DOCUMENTS), out, name="m")
    out.write_bytes(flip(out.read_bytes()))
    with pytest.raises(InputError, match=r"a\.parquet: damaged after row"):
        encode_to_parquet(model, iter(DOCUMENTS), out, name="m", resume=True)


def test_parts_after_a_damaged_one_are_discarded(model, tmp_path):
    out, whole = tmp_path / "a.parquet", tmp_path / "whole.parquet"
    with pytest.raises(KeyboardInterrupt):
        encode_to_parquet(model, interrupted(DOCUMENTS, 19), out, name="m")
    (tmp_path / "a.parquet.partial" / "part-000000.parquet").unlink()
    with pytest.raises(InputError, match="add --resume"):
        encode_to_parquet(model, iter(DOCUMENTS), out, name="m", ratio=1.0)
    encode_to_parquet(model, iter(DOCUMENTS), out, name="m", ratio=1.0, resume=True)
    encode_to_parquet(model, iter(DOCUMENTS), whole, name="m", ratio=1.0)
    assert same(out, whole)


def test_a_damaged_run_file_is_reported(model, tmp_path):
    out = tmp_path / "a.parquet"
    with pytest.raises(KeyboardInterrupt):
        encode_to_parquet(model, interrupted(DOCUMENTS, 19), out, name="m")
    (tmp_path / "a.parquet.partial" / "run.json").write_text("{")
    with pytest.raises(InputError, match=r"run\.json: not JSON .* Delete .* to start over"):
        encode_to_parquet(model, iter(DOCUMENTS), out, name="m", resume=True)


def test_a_fingerprint_depends_on_the_weights_and_not_on_the_folder(model, tmp_path):
    for name in ("one", "two"):
        model.save_pretrained(tmp_path / name)
    one, two = (bulk.fingerprint(load(tmp_path / name)) for name in ("one", "two"))
    assert one == two == bulk.fingerprint(model)
    assert bulk.fingerprint(tiny_model("bart", scorer_layer=2)) != bulk.fingerprint(tiny_model("mbart"))


def test_no_texts_give_an_empty_file(model, tmp_path):
    assert encode_to_parquet(model, iter([]), tmp_path / "a.parquet", name="m") == 0
    assert load_nuggets(tmp_path / "a.parquet") == ([], [])


def test_a_missing_folder_is_reported_before_encoding(model, tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        encode_to_parquet(model, iter(DOCUMENTS), tmp_path / "no" / "a.parquet", name="m")


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_pandas_polars_and_duckdb_read_it(model, tmp_path, dtype):
    out = tmp_path / "a.parquet"
    encode_to_parquet(model, iter(DOCUMENTS), out, name="m", dtype=dtype)
    expected = [item.vectors for _, item in iter_nuggets(out)]
    assert expected[0].dtype == dtype
    frame = pd.read_parquet(out)
    assert np.array_equal(np.stack(frame.vectors[3]), expected[3])
    assert np.array_equal(np.array(pl.read_parquet(out)["vectors"][3].to_list(), dtype), expected[3])
    (rows,) = duckdb.sql(f"select vectors from '{out}' where id = 'd3'").fetchall()
    assert np.array_equal(np.array(rows[0], dtype), expected[3])
    assert pq.read_schema(out).field("vectors").type.value_type.list_size == WIDTH


def test_saving_and_loading_keeps_everything(model, tmp_path):
    nuggets = model.encode(CORPUS)
    save_nuggets(tmp_path / "a.parquet", nuggets, ids=list("abcde"))
    ids, again = load_nuggets(tmp_path / "a.parquet")
    assert ids == list("abcde")
    assert all(np.array_equal(a.vectors, b.vectors) for a, b in zip(nuggets, again, strict=True))
    with pytest.raises(InputError, match="2 ids for 5 nuggets"):
        save_nuggets(tmp_path / "a.parquet", nuggets, ids=["a", "b"])
    with pytest.raises(InputError, match="no nuggets to save"):
        save_nuggets(tmp_path / "a.parquet", [])


def test_a_file_without_nuggets_is_reported(tmp_path):
    pd.DataFrame({"a": [1]}).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(InputError, match="but not of nuggets"):
        load_nuggets(tmp_path / "a.parquet")
    (tmp_path / "b.parquet").write_text(json.dumps({}))
    with pytest.raises(InputError, match="not a Parquet file"):
        load_nuggets(tmp_path / "b.parquet")
    with pytest.raises(InputError, match="no such file"):
        load_nuggets(tmp_path / "c.parquet")
