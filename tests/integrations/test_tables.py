"""Nuggets as columns of Arrow, datasets, pandas, polars and LanceDB, and back."""

from __future__ import annotations

import datasets
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from tests.tiny import CORPUS
from textnuggets.errors import InputError
from textnuggets.integrations.tables import encode_column, encode_frame, to_arrow, to_nuggets

TEXTS = [*CORPUS, " ".join(CORPUS)]


def assert_same(found, expected):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        for name in ("vectors", "scores", "positions", "spans", "windows"):
            assert np.array_equal(getattr(one, name), getattr(other, name)), name
        assert one.tokens == other.tokens


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_arrow_brings_everything_back(model, dtype):
    nuggets = model.encode(TEXTS, dtype=dtype)
    table = to_arrow(nuggets, ids=range(6), texts=TEXTS)
    assert table["text"].to_pylist() == TEXTS
    assert_same(to_nuggets(table), nuggets)
    assert to_nuggets(table)[5].layout == nuggets[5].layout
    assert_same(to_nuggets(pa.concat_tables([table, table]).slice(3, 6)), [*nuggets[3:], *nuggets[:3]])


def test_dataset_map_adds_columns_that_read_back(model):
    dataset = datasets.Dataset.from_dict({"passage": TEXTS, "n": list(range(6))})
    mapped = dataset.map(encode_column(model, "passage", ratio=0.3), batched=True, batch_size=4)
    assert mapped["n"][:] == list(range(6))
    assert_same(to_nuggets(mapped), model.encode(TEXTS, ratio=0.3))


@pytest.mark.parametrize("library", [pd, pl])
def test_a_frame_gets_columns_and_gives_them_back(model, library):
    frame = library.DataFrame({"text": TEXTS, "year": range(6)})
    if library is pd:
        frame.index = [f"row {i}" for i in range(6)]
    encoded = encode_frame(frame, model)
    assert list(encoded["year"]) == list(range(6))
    assert encoded.shape == (6, 9)
    assert_same(to_nuggets(encoded), model.encode(TEXTS))
    queries = encode_frame(frame, model, query=True, ratio=1.0)
    assert len(next(iter(queries["vectors"]))) > len(next(iter(encoded["vectors"])))


def test_bad_tables_are_refused(model):
    nuggets = model.encode(CORPUS[:2])
    with pytest.raises(InputError, match="1 ids for 2 nuggets"):
        to_arrow(nuggets, ids=["a"])
    with pytest.raises(InputError, match="no column 'scores'"):
        to_nuggets(to_arrow(nuggets).drop(["scores"]))
    with pytest.raises(InputError, match="got dict"):
        to_nuggets({})
    with pytest.raises(InputError, match="there is no column 'text': choose one of body"):
        encode_frame(pd.DataFrame({"body": CORPUS}), model)
    with pytest.raises(InputError, match="already has a column 'vectors'"):
        encode_frame(encode_frame(pd.DataFrame({"text": CORPUS}), model), model)
    uneven = to_arrow(nuggets).to_pandas()
    uneven["spans"] = [[[0, 1, 2]], [[0]]]
    with pytest.raises(InputError, match="'spans' has null values, or lists of different lengths"):
        to_nuggets(uneven)


def test_lancedb_stores_the_columns_and_searches_by_maxsim(model, tmp_path):
    import lancedb

    nuggets = model.encode(TEXTS)
    table = lancedb.connect(str(tmp_path / "lance")).create_table("texts", to_arrow(nuggets, texts=TEXTS))
    query = model.encode(CORPUS[2])
    found = (
        table.search(query.vectors, vector_column_name="vectors").distance_type("cosine").limit(6).to_arrow()
    )
    scores = 1 - found["_distance"].to_numpy() / len(query)
    order = [TEXTS.index(text) for text in found["text"].to_pylist()]
    assert np.abs(scores - model.similarity(query, nuggets)[0][order]).max() < 1e-5
    assert_same(to_nuggets(table.to_arrow()), nuggets)
