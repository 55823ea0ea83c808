"""Reading corpora of every layout."""

from __future__ import annotations

import gzip
import json

import pytest

from textnuggets.errors import InputError
from textnuggets.io.corpora import read_passages, read_texts


def write(path, *records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return str(path)


def rows(source, *languages):
    return [passage.rows for passage in read_passages([source], languages or ("en",))]


def test_a_text_is_one_passage_of_sentences(tmp_path):
    source = write(tmp_path / "a.jsonl", {"text": "One  is here. Two is\nthere."}, {"text": " "})
    assert rows(source) == [[("One is here.",), ("Two is there.",)]]


@pytest.mark.parametrize("layout", ["sections", "chapters"])
def test_paragraphs_under_one_heading_are_one_passage(tmp_path, layout):
    parts = [{"head": "A", "paras": ["One. Two.", "Three."]}, {"head": "B", "paras": ["Four."]}]
    source = write(tmp_path / "a.jsonl", {"title": "T", layout: parts})
    assert rows(source) == [[("One.",), ("Two.",), ("Three.",)], [("Four.",)]]


def test_aligned_pairs_are_read_in_either_direction_or_one_side_alone(tmp_path):
    source = write(tmp_path / "a.jsonl", {"lang": "fr", "pairs": [["Yes.", "Oui."], ["No.", ""]]})
    assert rows(source, "en", "fr") == [[("Yes.", "Oui.")]]
    assert rows(source, "fr", "en") == [[("Oui.", "Yes.")]]
    assert rows(source, "en") == [[("Yes.",), ("No.",)]]


def test_consecutive_one_pair_records_are_one_passage(tmp_path):
    records = [{"translation": {"en": f"{i}.", "zh": f"{i}。"}} for i in range(3)]
    source = write(tmp_path / "a.jsonl", *records)
    assert rows(source, "en", "zh") == [[("0.", "0。"), ("1.", "1。"), ("2.", "2。")]]


def test_plain_gzipped_parquet_and_folders_hold_the_same(tmp_path):
    import pandas as pd

    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.txt").write_text("One. Two.\n\nThree.\n")
    with gzip.open(tmp_path / "a.txt.gz", "wt") as file:
        file.write("One. Two.\n\nThree.\n")
    pd.DataFrame({"text": ["One. Two.", "Three."]}).to_parquet(tmp_path / "a.parquet")
    expected = [[("One.",), ("Two.",)], [("Three.",)]]
    for name in ("folder", "a.txt.gz", "a.parquet"):
        assert rows(str(tmp_path / name)) == expected
    texts = ["One.", "Two.", "One. Two.", "Three.", "Three."]  # sentences, then their passages
    assert list(read_texts([str(tmp_path / "folder")])) == texts


def test_datasets_from_disk_and_by_name_are_read(tmp_path):
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    data = datasets.Dataset.from_list([{"translation": {"en": "Yes.", "fr": "Oui."}}])
    data.save_to_disk(tmp_path / "saved")
    assert rows(str(tmp_path / "saved"), "en", "fr") == [[("Yes.", "Oui.")]]
    (tmp_path / "named").mkdir()
    write(tmp_path / "named" / "train.jsonl", {"text": "One."})
    assert rows(f"hf:{tmp_path / 'named'}") == [[("One.",)]]
    with pytest.raises(InputError, match="cannot be loaded"):
        rows(f"hf:{tmp_path / 'named'}::nosuchsplit")


@pytest.mark.parametrize(
    ("record", "languages", "words"),
    [
        ({"body": "x"}, ("en",), "line 1: needs one of the fields text, .*found 'body'"),
        ({"text": 3}, ("en",), "line 1: a text is int"),
        ({"text": "x"}, ("en", "fr"), "line 1: expected aligned pairs in en and fr"),
        ({"lang": "de", "pairs": [["a", "b"]]}, ("en", "fr"), "line 1: no text in 'fr'; found 'en', 'de'"),
        ({"sections": [{"head": "x"}]}, ("en",), "line 1: the field 'sections' is not as expected"),
        ({"pairs": [["a"]]}, ("en",), "line 1: .*'pairs' is not as expected"),
    ],
)
def test_a_record_that_cannot_be_used_is_named_by_file_and_line(tmp_path, record, languages, words):
    source = write(tmp_path / "a.jsonl", record)
    with pytest.raises(InputError, match=words):
        rows(source, *languages)


def test_a_missing_or_unknown_source_is_an_error(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.csv").write_text("x")
    for name, words in (
        ("none.jsonl", "no such file"),
        ("empty", "contains no"),
        ("a.csv", "unknown file type"),
    ):
        with pytest.raises(InputError, match=words):
            rows(str(tmp_path / name))
