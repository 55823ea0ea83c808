"""Batches of items, and cached Arrow files."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from textnuggets.errors import TextnuggetsWarning
from textnuggets.io.arrow import cache_batches, map_table
from textnuggets.io.batching import batches


def test_a_batch_ends_at_its_size_or_once_it_has_enough_characters():
    assert list(batches("abcde", 2)) == [["a", "b"], ["c", "d"], ["e"]]
    assert list(batches(["aaa", "b", "cc", "d"], 3, 3, len)) == [["aaa"], ["b", "cc"], ["d"]]
    assert list(batches([], 3)) == []


def test_batches_are_yielded_before_the_next_items_are_read():
    read = []
    stream = batches((read.append(i) or i for i in range(10)), 3)
    assert next(stream) == [0, 1, 2]
    assert read == [0, 1, 2]


SCHEMA = pa.schema([("n", pa.int64())])


def of(*numbers):
    return pa.RecordBatch.from_pydict({"n": np.array(numbers)}, schema=SCHEMA)


def test_a_cached_file_is_computed_once(tmp_path):
    folder = str(tmp_path / "new" / "cache")
    path = cache_batches(folder, "x.arrow", SCHEMA, lambda: [of(1, 2), of(3)])
    assert map_table(path).column("n").to_pylist() == [1, 2, 3]
    assert cache_batches(folder, "x.arrow", SCHEMA, lambda: pytest.fail("computed again")) == path


def test_a_damaged_cached_file_is_computed_again(tmp_path):
    path = cache_batches(str(tmp_path), "x.arrow", SCHEMA, lambda: [of(1, 2)])
    whole = path.read_bytes()
    for damage in (whole[:-9], b"", whole[:200] + b"\xff" + whole[201:]):
        path.write_bytes(damage)
        with pytest.warns(TextnuggetsWarning, match=r"x\.arrow is damaged: it is computed again"):
            cache_batches(str(tmp_path), "x.arrow", SCHEMA, lambda: [of(1, 2)])
        assert path.read_bytes() == whole
    (tmp_path / "x.arrow.sha256").write_text("[" * 100_000)
    with pytest.warns(TextnuggetsWarning, match="computed again"):
        cache_batches(str(tmp_path), "x.arrow", SCHEMA, lambda: [of(1, 2)])
    (tmp_path / "x.arrow.sha256").unlink()  # as after a crash between the two files
    cache_batches(str(tmp_path), "x.arrow", SCHEMA, lambda: [of(3)])
    assert map_table(path)["n"].to_pylist() == [3]


def test_a_cached_file_that_fails_half_way_is_absent(tmp_path):
    def fail():
        yield of(1)
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        cache_batches(str(tmp_path), "x.arrow", SCHEMA, fail)
    assert not list(tmp_path.iterdir())
