"""Encoding several files: the same content as one by one, with finished shards skipped."""

from __future__ import annotations

import json
import sys

import pytest

from tests.tiny import CORPUS
from textnuggets.bulk.encode import encode_to_parquet
from textnuggets.bulk.shards import Settings, encode_shards, find_shards
from textnuggets.cli import main
from textnuggets.errors import InputError
from textnuggets.io.documents import read_documents
from textnuggets.model.parquet import load_nuggets


@pytest.fixture
def shards(tmp_path):
    folder = tmp_path / "shards"
    folder.mkdir()
    for number in range(3):
        lines = [json.dumps({"id": f"{number}-{i}", "text": text}) for i, text in enumerate(CORPUS)]
        (folder / f"part-{number}.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "notes.bin").write_bytes(b"x")
    return folder


def test_every_shard_equals_the_file_encoded_by_itself(shards, tmp_path, copier, copier_folder):
    done = encode_shards(find_shards(str(shards)), tmp_path / "out", Settings(copier_folder))
    assert [item.rows for item in done] == [5, 5, 5]
    alone = tmp_path / "alone.parquet"
    encode_to_parquet(copier, read_documents(str(shards / "part-1.jsonl")), alone, name=copier_folder)
    (ids, nuggets), (expected_ids, expected) = (
        load_nuggets(tmp_path / "out" / "part-1.parquet"),
        load_nuggets(alone),
    )
    assert ids == expected_ids
    for made, wanted in zip(nuggets, expected, strict=True):
        assert (made.vectors == wanted.vectors).all()


def test_finished_shards_are_skipped_and_a_bad_one_does_not_stop_the_others(
    shards, tmp_path, copier_folder, monkeypatch
):
    (shards / "part-1.jsonl").write_text('{"text": "fine"}\n{"text": 3}\n')
    settings, files = Settings(copier_folder), find_shards(str(shards / "*.jsonl"))
    done = encode_shards(files, tmp_path / "out", settings)
    assert [item.rows for item in done] == [5, 0, 5]
    assert "part-1.jsonl, line 2" in done[1].error
    (shards / "part-1.jsonl").write_text('{"text": "fine"}\n')
    from textnuggets.bulk import encode as bulk

    encoded = []
    stream = bulk.encode_stream
    monkeypatch.setattr(
        bulk, "encode_stream", lambda m, texts, *a: encoded.append(texts) or stream(m, texts, *a)
    )
    assert [item.rows for item in encode_shards(files, tmp_path / "out", settings)] == [5, 1, 5]
    assert encoded == [["fine"]]


def test_bad_lines_are_reported_with_their_file_and_skipped(shards, tmp_path, copier_folder, capsys):
    (shards / "part-2.jsonl").write_text('{"text": "fine"}\nnot json\n')
    done = encode_shards(find_shards(str(shards)), tmp_path / "out", Settings(copier_folder, skip_bad=True))
    assert [item.rows for item in done] == [5, 5, 1]
    assert "part-2.jsonl, line 2: not JSON" in capsys.readouterr().err


def test_invalid_shards_are_reported(shards, tmp_path):
    with pytest.raises(InputError, match=r"no \.txt"):
        find_shards(str(tmp_path / "none" / "*"))
    (shards / "part-0.txt").write_text("twice")
    with pytest.raises(InputError, match="several shards would be written to"):
        encode_shards(find_shards(str(shards)), tmp_path / "out", Settings(None))
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="several shards need an output folder"):
        encode_shards(find_shards(str(shards / "*.jsonl")), tmp_path / "file", Settings(None))


def test_the_command_takes_a_pattern(shards, tmp_path, copier_folder, monkeypatch, capsys):
    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["textnuggets", "encode", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code or 0, capsys.readouterr().err

    code, err = run(shards / "*.jsonl", "-o", tmp_path / "out", "--model", copier_folder)
    assert code == 0, err
    assert "15 texts from 3 files" in err
    code, err = run(shards, "-o", tmp_path / "out", "--model", copier_folder, "--engine", "spark")
    assert code == 2
    assert "must be 'local' or 'ray'" in err
