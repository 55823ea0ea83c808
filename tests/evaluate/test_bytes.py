"""Bytes beside quality: what is stored of vectors, and baselines that take as many bytes."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tests.tiny import CORPUS, WIDTH, tiny_model
from textnuggets.errors import InputError
from textnuggets.evaluate.pooling_baselines import (
    PRECISIONS,
    bytes_of_vector,
    count_words,
    four_bits,
    signs,
    split_words,
    words_per_passage,
)
from textnuggets.evaluate.similarity import evaluate_similarity, to_markdown
from textnuggets.evaluate.systems import make_system
from textnuggets.evaluate.tasks import read_task
from textnuggets.model.maxsim import one_way, unit
from textnuggets.report.figures import draw_similarity
from textnuggets.search.backends.base import Stored
from textnuggets.search.backends.edge import EdgeEngine
from textnuggets.search.manifest import BITS, Manifest, bytes_per_vector

NUMBERS = st.floats(-1, 1, width=32)
VECTORS = st.integers(1, 20).flatmap(lambda d: arrays(np.float32, (3, d), elements=NUMBERS))


@given(VECTORS)
def test_a_product_of_signs_counts_the_bits_that_differ(vectors):
    first, second = signs(vectors[:1]), signs(vectors[1:])
    distances = ((vectors[:1] < 0) != (vectors[1:] < 0)).sum(1)
    assert (first @ second.T)[0] == pytest.approx(1 - 2 * distances / vectors.shape[1], abs=1e-5)
    assert np.linalg.norm(first) == pytest.approx(1, abs=1e-5)


@given(VECTORS, VECTORS)
def test_a_query_of_floats_is_added_up_with_the_signs_of_the_document(queries, documents):
    d = min(queries.shape[1], documents.shape[1])
    query, document = queries[:, :d], documents[:, :d]
    expected = [[sum(-q if v < 0 else q for q, v in zip(a, b, strict=True)) for b in document] for a in query]
    assert query @ signs(document).T == pytest.approx(np.array(expected) / d**0.5, abs=1e-4)


@given(VECTORS, st.sampled_from(["float32", "float16", "int8"]))
def test_rounding_errs_by_no_more_than_half_a_step(vectors, dtype):
    step = {"float32": 0, "float16": 2**-10, "int8": 1 / 127}[dtype]
    largest = np.abs(vectors).max(1, keepdims=True)
    assert (np.abs(PRECISIONS[dtype](vectors) - vectors) <= step / 2 * largest + 1e-7).all()


@pytest.mark.parametrize("dimensions", [32, 384])
def test_four_bits_lose_as_much_as_in_an_index(tmp_path, dimensions):
    vectors = np.random.default_rng(0).normal(size=(200, dimensions)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    manifest = Manifest(2, "0", "m", "f", 0.1, 0.1, dimensions, "int4", True, "engine-1")
    engine = EdgeEngine.create(tmp_path / "engine-1", manifest)
    engine.put([Stored("a", vectors, {})])
    (stored,) = engine.documents()
    engine.close()
    ours, theirs = (
        1 - (unit(item, "text") * vectors).sum(1).mean() for item in (four_bits(vectors), stored.vectors)
    )
    assert 0.003 < theirs < 0.006
    assert ours == pytest.approx(theirs, rel=0.1)


def test_rounding_to_four_bits_keeps_lengths_and_zeros():
    vectors = np.array([[0, 0, 0], [3, 4, 0]], np.float32)
    assert np.linalg.norm(four_bits(vectors), axis=1) == pytest.approx([0, 5], abs=1e-4)


def test_every_dtype_of_an_index_has_a_precision_and_its_bytes():
    assert set(PRECISIONS) == {*BITS, "bit"}
    for dtype in BITS:
        assert bytes_of_vector(384, dtype) == bytes_per_vector(384, dtype)
    assert [bytes_of_vector(d, "bit") for d in (1, 8, 9, 384)] == [1, 1, 2, 48]


@given(st.lists(st.sampled_from(["a", "bc", "d."]), max_size=30), st.integers(1, 12))
def test_passages_hold_every_word_once_in_the_fewest_parts_of_equal_length(words, most):
    passages = split_words("  " + " \n".join(words) + " ", most)
    counts = [count_words(passage) for passage in passages]
    assert [word for passage in passages for word in passage.split()] == words
    assert len(passages) == max(1, -(-len(words) // most))
    assert max(counts) <= most
    assert max(counts) - min(counts) <= 1


@given(st.lists(st.integers(0, 300), min_size=1, max_size=20), st.floats(0.5, 50))
def test_passages_are_the_shortest_that_are_few_enough(counts, few):
    def mean(words):
        return np.mean([len(split_words("a " * count, words)) for count in counts])

    words = words_per_passage(counts, few)
    assert mean(words) <= max(few, 1)
    assert words == 1 or mean(words - 1) > few


def test_a_text_without_words_is_one_passage():
    assert split_words("", 3) == [""]
    assert words_per_passage([0, 0], 1) == 1


def test_each_passage_is_encoded_by_itself_and_the_best_counts(models):
    bare = models / "bare"
    text = " ".join(CORPUS[:3])
    system = make_system(f"{bare}:passages@20", one_way)
    found = system.read([CORPUS[1]], [text, CORPUS[4]])(0, [0, 1])
    passages = split_words(text, 20)
    assert len(passages) == 3
    alone = make_system(f"{bare}:mean", one_way).read([CORPUS[1]], [*passages, CORPUS[4]])(0, range(4))
    assert found == pytest.approx([alone[:3].max(), alone[3]], abs=1e-6)
    assert system.vectors == 2


def test_one_bit_is_stored_of_documents_but_not_of_queries(models):
    bare = models / "bare"
    system, whole = (make_system(f"{bare}:{method}", one_way) for method in ("bits", "all"))
    found = system.read(CORPUS[:1], CORPUS)(0, range(5))
    vectors = [unit(item, "text") for item in whole._encode(CORPUS, 1.0)]
    expected = [(vectors[0] @ signs(item).T).max(1).mean() for item in vectors]
    assert found == pytest.approx(expected, abs=1e-5)


def test_every_system_has_its_bytes_in_json_table_and_figure(models, retrieval):
    bare, nuggets = models / "bare", models / "nuggets"
    names = [
        "bm25",
        f"nuggets={nuggets}@0.5",
        f"all={bare}:all",
        f"bits={bare}:bits",
        f"equal={bare}:passages",
    ]
    found = evaluate_similarity(names, read_task(retrieval))
    rows = {row["system"]: row for row in found["results"]}
    assert {name: row.get("dtype") for name, row in rows.items()} == {
        "bm25": None,
        "nuggets": "int4",
        "all": "float16",
        "bits": "bit",
        "equal": "float16",
    }
    assert rows["nuggets"]["bytes"] == rows["nuggets"]["vectors"] * bytes_per_vector(WIDTH, "int4")
    assert rows["all"]["bytes"] == rows["all"]["vectors"] * WIDTH * 2
    assert rows["bits"]["vectors"] == rows["all"]["vectors"]
    assert rows["all"]["bytes"] == 16 * rows["bits"]["bytes"]
    assert 0.5 * rows["nuggets"]["bytes"] < rows["equal"]["bytes"] <= rows["nuggets"]["bytes"]
    assert rows["bm25"]["bytes"] > 8 * 10  # at least ten words in a document, each with a score and a number
    table = to_markdown(found)
    assert f"| {rows['all']['bytes']:,.0f} (float16) |" in table
    assert f"| equal ({rows['equal']['words']} words) |" in table
    assert [axes.get_xlabel() for axes in draw_similarity(found).axes] == [
        "vectors per document",
        "bytes per document",
    ]


def test_results_without_bytes_are_still_read_and_measured_again(models, retrieval):
    task, names = read_task(retrieval), ["bm25", f"few={models / 'nuggets'}@0.2"]
    found = evaluate_similarity(names, task)
    early = json.loads(json.dumps(found))
    del early["settings"]["split"]
    for row in early["results"]:
        for key in ("bytes", "dtype", "dimensions"):
            row.pop(key, None)
    del early["results"][0]["method"]
    assert "bytes" not in to_markdown(early)
    assert len(draw_similarity(early).axes) == 1
    assert evaluate_similarity(names, task, earlier=early) == found


def test_passages_need_a_number_or_nuggets_whose_bytes_they_equal(models, retrieval):
    names = ["bm25", f"{models / 'bare'}:passages", f"{models / 'nuggets'}@0.2"]
    with pytest.raises(InputError, match="name a system of nuggets before it"):
        evaluate_similarity(names, read_task(retrieval))


@pytest.mark.parametrize("method", ["", ":all", ":passages@5"])
def test_bytes_are_those_of_nuggets_with_few_dimensions(tmp_path, method):
    tiny_model("bert", dim=12).save_pretrained(tmp_path / "few")
    system = make_system(f"{tmp_path / 'few'}{method}", one_way)
    system.read(CORPUS[:1], CORPUS)
    assert system.describe()["dimensions"] == system._encode_documents(CORPUS[:1])[0].shape[1] == 12
    assert system.bytes == system.vectors * bytes_per_vector(12, system.dtype)
