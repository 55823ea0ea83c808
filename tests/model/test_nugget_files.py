"""Nugget files of others and damaged ones: refused on one line that names the row."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from tests.tiny import CORPUS, tiny_model
from textnuggets import load_nuggets, save_nuggets
from textnuggets.errors import CheckpointError, ConfigError, InputError
from textnuggets.model.parquet import METADATA_KEY, read_metadata

ROW = 1  # the row that is damaged, from 0


@pytest.fixture
def path(model, tmp_path):
    save_nuggets(tmp_path / "a.parquet", model.encode(CORPUS))
    return tmp_path / "a.parquet"


def change(path, column, edit):
    """Rewrite a file after an edit of one row of a column."""
    table = pq.read_table(path)
    values = table[column].to_pylist()
    values[ROW] = edit(values[ROW])
    changed = pa.array(values, table.schema.field(column).type)
    place = table.column_names.index(column)
    pq.write_table(table.set_column(place, table.schema.field(column), changed), path)


def with_first(value):
    return lambda values: [value, *values[1:]]


WRONG = {
    "no vectors": ("vectors", lambda _: None, "'vectors' has null values"),
    "a null vector": ("vectors", with_first(None), "'vectors' has null values"),
    "a null in a vector": ("vectors", lambda v: [[None, *v[0][1:]], *v[1:]], "'vectors' has null values"),
    "NaN in a vector": ("vectors", lambda v: [[np.nan, *v[0][1:]], *v[1:]], "'vectors' has NaN or infinite"),
    "an infinite vector": ("vectors", lambda v: [[-np.inf, *v[0][1:]], *v[1:]], "'vectors' has NaN or inf"),
    "an infinite score": ("scores", with_first(np.inf), "'scores' has NaN or infinite"),
    "no scores": ("scores", lambda _: None, "'scores' has null values"),
    "a null position": ("positions", with_first(None), "'positions' has null values"),
    "a negative position": ("positions", with_first(-1), "'positions' has negative values"),
    "a null span": ("spans", with_first(None), "'spans' has null values"),
    "no windows": ("windows", lambda _: None, "'windows' has null values"),
    "a negative window": ("windows", with_first([-1, 1, 0, 1]), "'windows' has negative values"),
    "a vector too many": ("vectors", lambda v: [*v, v[0]], "nuggets with .* vectors cannot have"),
    "no id": ("id", lambda _: None, "'id' has null values"),
    "no tokens": ("tokens", lambda _: None, "'tokens' has null values"),
    "a null token": ("tokens", with_first(None), "'tokens' has null values"),
    "a layout without words": ("layout", lambda v: {**v, "words": None}, "'layout' has null values"),
    "a null run": ("layout", lambda v: {**v, "runs": [None]}, "'layout' has null values"),
    "a run without space": ("layout", lambda v: {**v, "runs": [{"before": 0}]}, "'layout' has null values"),
}


@pytest.mark.parametrize(("column", "edit", "message"), WRONG.values(), ids=WRONG)
def test_a_row_with_wrong_values_is_named(path, column, edit, message):
    change(path, column, edit)
    with pytest.raises(InputError, match=f"a.parquet, row {ROW + 1}: .*{message}"):
        load_nuggets(path)


@pytest.mark.parametrize("column", ["id", "vectors", "scores", "spans", "windows", "tokens", "layout"])
def test_columns_of_another_type_are_refused(path, column):
    table = pq.read_table(path)
    place = table.column_names.index(column)
    pq.write_table(table.set_column(place, column, pa.array(range(len(table)))), path)
    with pytest.raises(InputError, match=f"a.parquet: the column '{column}' is int64, not"):
        load_nuggets(path)


def test_a_column_that_is_there_twice_is_refused(path):
    table = pq.read_table(path)
    pq.write_table(table.append_column("vectors", table["vectors"]), path)
    with pytest.raises(InputError, match="not of nuggets"):
        load_nuggets(path)


def test_tokens_that_are_not_unicode_are_named(path):
    table = pq.read_table(path)
    tokens = table["tokens"].combine_chunks()
    changed = pa.array([b"\xff"] * len(tokens.values), pa.binary()).view(pa.string())
    column = pa.ListArray.from_arrays(tokens.offsets, changed)
    pq.write_table(table.set_column(table.column_names.index("tokens"), "tokens", column), path)
    with pytest.raises(InputError, match=r"row 1: the column 'tokens' is not UTF-8"):
        load_nuggets(path)


@pytest.mark.parametrize("metadata", [b"\xff", b"[" * 100_000, b'{"model": 5}', b'{"weights": []}'])
def test_damaged_metadata_is_refused(path, metadata):
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({METADATA_KEY: metadata}), path)
    with pytest.raises(InputError, match=r"a\.parquet: its metadata is damaged"):
        read_metadata(path)


def test_a_flipped_byte_is_reported_by_the_command_line(copier, copier_folder, tmp_path, run):
    path = tmp_path / "a.parquet"
    save_nuggets(path, copier.encode(CORPUS))
    data = bytearray(path.read_bytes())
    data[len(data) // 4] ^= 1  # inside the vectors, which are most of the file
    path.write_bytes(data)
    done = run("reconstruct", path, "--model", copier_folder)
    assert done.returncode == 2
    assert f"error: {path}: damaged after row 0" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_model_that_returns_nan_or_infinity_is_refused(value):
    model = tiny_model()
    with torch.no_grad():
        model.value.weight[0, 0] = value
    with pytest.raises(CheckpointError, match="the model returns NaN or infinite vectors"):
        model.encode(CORPUS[0])


def test_vectors_too_large_for_half_precision_are_refused():
    model = tiny_model()
    with torch.no_grad():
        model.value.weight *= 1e6
    assert np.isfinite(model.encode(CORPUS[0]).vectors).all()
    with pytest.raises(ConfigError, match="beyond the range of float16: use dtype float32"):
        model.encode(CORPUS[0], dtype="float16")
