"""Public behaviour of encode."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pytest
import torch

from tests.tiny import CORPUS, FAMILIES, WIDTH, tiny_model, tiny_tokenizer
from textnuggets import NuggetModel, Nuggets
from textnuggets.errors import ConfigError, InputError
from textnuggets.model.budget import Budget, nugget_count

AWKWARD = [
    "",
    " ",
    "a",
    "\n",
    "cat",
    "😀👨‍👩‍👧‍👦",
    "مرحبا بالعالم، كيف الحال؟",
    "שלום",
    "中文没有空格。",
    "\x00\ufeff",
    "é" * 50,
    CORPUS[0],
]


def test_results_come_in_the_order_given_with_shapes_as_documented(model):
    texts = [*CORPUS, "a", *CORPUS[::-1]]
    found = model.encode(texts, ratio=0.3, batch_size=2)
    assert len(found) == len(texts)
    for text, nuggets in zip(texts, found, strict=True):
        n = len(tiny_tokenizer()(text).input_ids)
        k = nugget_count(n, 0.3)
        assert nuggets.token_count == n
        assert len(nuggets) == k
        assert nuggets.vectors.shape == (k, WIDTH)
        assert nuggets.vectors.dtype == np.float32
        assert nuggets.positions.shape == nuggets.scores.shape == (k,)
        assert nuggets.spans.shape == nuggets.segments.shape == (k, 2)
        assert (np.diff(nuggets.positions) > 0).all()
        for (start, end), token in zip(nuggets.spans, nuggets.tokens, strict=True):
            assert text[start:end] == token or start == end


def test_one_string_gives_one_nuggets(model):
    assert isinstance(model.encode("The cat sat."), Nuggets)
    assert model.encode([]) == []


def test_segments_run_from_the_previous_nuggets_end_to_its_own(model):
    nuggets = model.encode(CORPUS[1], ratio=0.3)
    ends = [*nuggets.spans[:-1, 1].tolist(), len(CORPUS[1])]  # the last segment includes the rest of the text
    assert nuggets.segments.tolist() == [list(pair) for pair in zip([0, *ends[:-1]], ends, strict=True)]


def test_segments_cover_a_long_text_window_by_window(model):
    text = " ".join(CORPUS)
    nuggets = model.encode(text, ratio=0.1)
    assert len(nuggets.windows) > 1
    assert nuggets.segments[0, 0] == 0
    assert nuggets.segments[-1, 1] == len(text)
    for (_, end), (start, _) in pairwise(nuggets.segments.tolist()):
        assert not text[end:start].strip()


@pytest.mark.parametrize("family", FAMILIES)
def test_vectors_do_not_depend_on_what_shares_the_batch(family):
    model = tiny_model(family)
    texts = [*CORPUS, "cat", "The dog lay."]
    together = model.encode(texts, batch_size=7)
    alone = model.encode(texts, batch_size=1)
    for a, b in zip(together, alone, strict=True):
        assert a.positions.tolist() == b.positions.tolist()
        np.testing.assert_allclose(a.vectors, b.vectors, atol=1e-5)


@pytest.mark.filterwarnings("ignore::textnuggets.errors.TextnuggetsWarning")
@pytest.mark.parametrize("family", ["bart", "t5", "roberta"])
def test_awkward_texts_all_work(family):
    model = tiny_model(family)
    for text, nuggets in zip(AWKWARD, model.encode(AWKWARD), strict=True):
        assert len(nuggets) >= 1
        assert np.isfinite(nuggets.vectors).all()
        assert (nuggets.spans <= len(text)).all()


def test_a_line_of_a_megabyte_is_encoded_whole(model):
    text = (" ".join(CORPUS) + " ") * 3500
    assert len(text) > 1_000_000
    nuggets = model.encode(text[:1_000_000], ratio=0.1)
    assert len(nuggets.windows) > 1000
    assert nuggets.window_spans[-1, 1] == len(text[:1_000_000].rstrip())


def test_long_texts_are_joined_with_positions_and_spans_of_the_whole_text(model):
    text = " ".join(CORPUS * 4)
    nuggets = model.encode(text, ratio=0.2)
    assert len(nuggets.windows) > 3
    assert (np.diff(nuggets.positions) > 0).all()
    assert nuggets.positions[-1] < nuggets.token_count
    for (start, end), token in zip(nuggets.spans, nuggets.tokens, strict=True):
        assert text[start:end] == token or start == end
    # Each window equals the encoding of its part of the text alone.
    count, _, start, end = nuggets.windows[0]
    alone = model.encode(text[start:end], ratio=0.2)
    np.testing.assert_allclose(nuggets.vectors[:count], alone.vectors, atol=1e-5)


def test_a_generator_is_streamed_in_bounded_memory(model):
    pulled = 0

    def texts():
        nonlocal pulled
        for _ in range(1000):
            pulled += 1
            yield "The cat sat."

    stream = model.encode_iter(texts(), batch_size=2)
    next(stream)
    assert pulled <= 64
    assert sum(1 for _ in stream) == 999


def test_progress_advances_with_each_batch_and_ends_at_the_number_of_texts(model):
    from textnuggets.io.progress import Progress
    from textnuggets.model.encoding import encode_stream

    progress = Progress("encode", shown=False)
    texts = [*CORPUS, " ".join(CORPUS * 3)]
    stream = encode_stream(model, texts, Budget(0.2), 2, np.dtype("float32"), progress)
    assert len(list(stream)) == progress.done == len(texts)


def test_progress_off_a_terminal_is_plain_lines_on_standard_error(capsys, monkeypatch):
    from textnuggets.io import progress as module

    monkeypatch.setattr(module, "QUIET_SECONDS", 0.0)
    with module.Progress("encode", total=10) as progress:
        progress.add(4)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("encode: 4/10, ")


@pytest.mark.parametrize("selector", ["all_tokens", "sentence_boundary"])
def test_max_vectors_is_refused_by_selectors_that_ignore_the_count(selector):
    with pytest.raises(ConfigError, match="max_vectors does not apply to the selector"):
        tiny_model(selector=selector).encode("cat", max_vectors=1)


def test_max_vectors_caps_short_and_long_texts(model):
    long = " ".join(CORPUS * 4)
    short, capped = model.encode(["cat", long], max_vectors=20)
    assert len(short) == short.token_count <= 20
    assert len(capped) == 20
    with pytest.raises(InputError, match="at least one vector for each, but max_vectors is 2"):
        model.encode(long, max_vectors=2)


@pytest.mark.parametrize("lengths", [[5], [60, 60, 3], [1, 1, 1], [64] * 9])
@pytest.mark.parametrize("most", [9, 10, 33, 10_000])
def test_a_budget_is_shared_out_whole_and_never_beyond_a_windows_tokens(lengths, most):
    shares = Budget(1.0, most).share(lengths)
    assert sum(shares) == min(most, sum(lengths))
    assert all(1 <= share <= n for share, n in zip(shares, lengths, strict=True))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ratio": 0}, r"ratio must lie in \(0, 1\], got 0"),
        ({"ratio": 1.5}, "got 1.5"),
        ({"ratio": 0.1, "max_vectors": 3}, "not both"),
        ({"max_vectors": 0}, "got 0"),
        ({"batch_size": 2.5}, "got 2.5"),
        ({"batch_size": 0}, "batch_size must be a whole number of at least 1, got 0"),
        ({"dtype": "int8"}, "got 'int8'"),
    ],
)
def test_impossible_options_are_refused_with_their_value(model, options, message):
    with pytest.raises(ConfigError, match=message):
        model.encode(["cat"], **options)


def test_an_item_that_is_not_a_string_is_named_by_its_index(model):
    with pytest.raises(InputError, match="text 1 is NoneType"):
        model.encode(["cat", None])
    with pytest.raises(InputError, match="got int"):
        model.encode(3)
    with pytest.raises(InputError, match="text 0 contains an unpaired surrogate"):
        model.encode("\ud800")


def test_numpys_numbers_are_numbers(model):
    nuggets = model.encode("The cat sat.", ratio=np.float32(0.5), dtype=np.float16)
    assert nuggets.vectors.dtype == np.float16
    assert len(model.encode("The cat sat.", max_vectors=np.int64(2))) == 2
    assert len(list(model.encode_iter("The cat sat."))) == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("family", ["bart", "t5", "bert"])
def test_half_precision_comes_back_as_float32_unless_asked_for(family, dtype):
    model = tiny_model(family)
    full = model.encode(CORPUS[0])
    model.to(dtype)
    nuggets = model.encode(CORPUS[0])
    assert nuggets.vectors.dtype == np.float32
    assert model.encode(CORPUS[0], dtype="float16").vectors.dtype == np.float16
    assert nuggets.vectors.shape == full.vectors.shape
    if family != "bert":
        assert isinstance(model.reconstruct(nuggets, num_beams=2), str)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("family", FAMILIES)
def test_models_loaded_in_half_precision_encode_close_to_full(family, dtype, tmp_path):
    full = tiny_model(family, selector="all_tokens")
    full.save_pretrained(tmp_path)
    half = NuggetModel.from_pretrained(tmp_path, dtype=dtype)
    expected, found = (m.encode(CORPUS[0], batch_size=1).vectors for m in (full, half))
    np.testing.assert_allclose(found, expected, atol=0.15)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_scorer_in_half_precision_encodes_and_decodes(family, tmp_path):
    tiny_model(family).save_pretrained(tmp_path)
    model = NuggetModel.from_pretrained(tmp_path, dtype=torch.float16)
    nuggets = model.encode(CORPUS)
    assert all(np.isfinite(item.vectors).all() for item in nuggets)
    if model.can_decode:
        assert len(model.reconstruct(nuggets, num_beams=2)) == len(CORPUS)


def test_threads_may_share_a_model(model):
    expected = [item.vectors for item in model.encode(CORPUS, batch_size=1)]
    with ThreadPoolExecutor(4) as pool:
        runs = list(pool.map(lambda _: model.encode(CORPUS, batch_size=1), range(24)))
    for run in runs:
        for item, vectors in zip(run, expected, strict=True):
            np.testing.assert_allclose(item.vectors, vectors, atol=1e-6)


def test_encoding_leaves_training_mode_as_it_was():
    model = tiny_model().train()
    model.encode(CORPUS[0])
    assert model.training
    assert model.adapter.layers[-1].training
    assert not model.adapter.layers[0].training


def test_queries_and_documents_are_encoded_at_their_own_ratios():
    model = tiny_model("bart", ratio=0.25, query_ratio=0.5)
    text = CORPUS[0]
    np.testing.assert_array_equal(model.encode_document(text).vectors, model.encode(text, ratio=0.25).vectors)
    np.testing.assert_array_equal(model.encode_query(text).vectors, model.encode(text, ratio=0.5).vectors)
    assert len(model.encode_query(text, ratio=1.0)) == model.encode(text).token_count
    same = tiny_model("bart", ratio=0.25)
    assert len(same.encode_query([text])[0]) == len(same.encode_document([text])[0])


def test_nuggets_are_indexed_and_iterated_one_by_one(model):
    nuggets = model.encode(CORPUS[0], ratio=0.5)
    first, *_, last = nuggets
    np.testing.assert_array_equal(first.vector, nuggets.vectors[0])
    assert nuggets[-1].token == last.token == nuggets.tokens[-1]
    assert [one.span for one in nuggets[1:3]] == [tuple(span) for span in nuggets.spans[1:3].tolist()]
    assert [one.segment for one in nuggets] == [tuple(segment) for segment in nuggets.segments.tolist()]
    assert len(list(nuggets)) == len(nuggets)
    with pytest.raises(IndexError):
        nuggets[len(nuggets)]
