"""Labels: filters match exactly, whatever characters keys and values have."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tiny import CORPUS
from textnuggets import NuggetIndex
from textnuggets.errors import InputError
from textnuggets.search.labels import labels_of, split_label

# Texts of these tests have characters that the tiny tokenizer does not know.
pytestmark = pytest.mark.filterwarnings("ignore::textnuggets.errors.TextnuggetsWarning")

STRINGS = st.text(st.sampled_from('a="\\ {'), max_size=6)
METADATA = [{"a": "b=c"}, {"a=b": "c"}, {"a=b=c": ""}, {'"a"': "b"}, {"": "a=b"}, {"=": "="}]


@given(STRINGS, STRINGS)
def test_a_label_is_split_into_the_key_and_value_it_was_made_of(key, value):
    (label,) = labels_of({key: value})
    assert split_label(label) == (key, value)


@pytest.mark.parametrize("label", ["", "a", "=a", '"a=b', '"a"b=c', '"a"', '"\\x"=1'])
def test_what_is_not_key_and_value_is_refused(label):
    with pytest.raises(ValueError, match=r"."):
        split_label(label)


def test_filters_with_equals_signs_match_exactly(index):
    ids = [json.dumps(item) for item in METADATA]
    index.add(ids, [CORPUS[0]] * len(ids), METADATA)
    for name, item in zip(ids, METADATA, strict=True):
        assert [hit.id for hit in index.search("cat", filter=item)] == [name]
    for key in (1, None):
        with pytest.raises(InputError, match="keys are strings"):
            index.search("cat", filter={key: "a"})
    for value in (object(), [[1]], [{"a": 1}], b"a"):
        with pytest.raises(InputError, match="give a string, number, boolean or null"):
            index.search("cat", filter={"a": value})


def test_the_option_filter_takes_a_key_with_an_equals_sign_as_a_json_string(run, model, tmp_path):
    place = tmp_path / "index"
    with NuggetIndex.create(place, model) as index:
        index.add([json.dumps(item) for item in METADATA], [CORPUS[0]] * len(METADATA), METADATA)
    for option, found in (
        ("a=b=c", METADATA[0]),
        ('"a=b"=c', METADATA[1]),
        ('"a=b=c"=', METADATA[2]),
        (r'"\"a\""=b', METADATA[3]),
        ('""=a=b', METADATA[4]),
        ('"="==', METADATA[5]),
    ):
        lines = run("search", place, "cat", "--json", "--filter", option).stdout.splitlines()
        assert [json.loads(line)["metadata"] for line in lines] == [found]
