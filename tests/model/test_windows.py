"""Splitting of long texts at sentence ends, without loss."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiny import CORPUS, tiny_tokenizer
from textnuggets.errors import InputError
from textnuggets.model.windows import CutTexts, Window, cut_into_windows, reusing

LIMIT = 40
anything = st.text(max_size=400)
wordy = st.lists(
    st.sampled_from([*" ".join(CORPUS).split(), "\n\n", "中文句子。", "مرحبا", "😀👨‍👩‍👧", "é"]), max_size=150
)


def cut(text: str, limit: int = LIMIT) -> list[Window]:
    (windows,) = cut_into_windows(tiny_tokenizer(), [text], limit)
    return windows


@settings(deadline=None)
@given(text=st.one_of(anything, wordy.map(" ".join), wordy.map("".join)))
def test_windows_hold_every_character_but_white_space_in_order_and_fit(text):
    windows = cut(text)
    assert all(len(window.ids) <= LIMIT for window in windows)
    edges = [0, *(edge for w in windows for edge in (w.start, w.end)), len(text)]
    assert edges == sorted(edges)
    if len(windows) > 1:
        gaps = [text[a:b] for a, b in zip(edges[::2], edges[1::2], strict=True)]
        assert not "".join(gaps).strip()


@settings(deadline=None)
@given(text=st.one_of(anything, wordy.map(" ".join)))
def test_each_window_is_tokenized_as_if_it_had_been_given_alone(text):
    for window in cut(text if text.strip() else ""):
        assert window.ids == tiny_tokenizer()(text[window.start : window.end]).input_ids


def test_cuts_fall_on_sentence_ends():
    text = " ".join(CORPUS * 3)
    windows = cut(text, limit=64)
    assert len(windows) > 3
    assert all(text[window.start : window.end].endswith(".") for window in windows)


def test_a_sentence_longer_than_the_window_is_cut_between_words():
    text = " ".join(["cat"] * 200)
    windows = cut(text)
    assert len(windows) > 3
    assert all(set(text[w.start : w.end].split()) == {"cat"} for w in windows)


@pytest.mark.parametrize("text", ["x" * 5000, "中" * 3000, "😀" * 2000, "a b " * 3000])
def test_text_without_sentences_or_spaces_is_split_too(text):
    windows = cut(text)
    assert "".join(text[w.start : w.end] for w in windows).replace(" ", "") == text.replace(" ", "")


def byte_level_tokenizer():
    """Byte-level tokenizer like RoBERTa's, where every byte, including whitespace, is a token."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({**{c: i for i, c in enumerate(alphabet)}, "</s>": 256}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.post_processor = TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 256)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>")


def test_white_space_that_fills_many_tokens_becomes_one_empty_window():
    (windows,) = cut_into_windows(byte_level_tokenizer(), [" \n" * 100], 40)
    assert [(w.start, w.end, len(w.ids)) for w in windows] == [(0, 0, 1)]


@settings(deadline=None)
@given(text=st.one_of(anything, wordy.map(" ".join)))
def test_tokens_of_single_bytes_fit_too(text):
    (windows,) = cut_into_windows(byte_level_tokenizer(), [text], 16)
    assert all(len(window.ids) <= 16 for window in windows)
    assert "".join("".join(text[w.start : w.end] for w in windows).split()) == "".join(text.split())


def test_a_character_longer_than_the_window_is_named():
    with pytest.raises(InputError, match="at 20 takes 5 tokens, more than the window of 4"):
        cut_into_windows(byte_level_tokenizer(), ["a" * 20 + "😀"], 4)


def test_spans_leave_out_white_space_and_special_tokens_stand_at_the_edges():
    text = "The cat  sat."
    (window,) = cut(text)
    spans = [window.span(i) for i in range(len(window.ids))]
    assert spans[0] == (0, 0)
    assert spans[-1] == (len(text), len(text))
    assert "".join(text[a:b] for a, b in spans) == "Thecatsat."
    assert window.surface(0) == "<s>"
    assert window.surface(len(spans) - 1) == "</s>"


def test_sentence_ends_are_the_last_tokens_of_sentences():
    text = "The cat sat. Rain fell all night! It stood empty"
    (window,) = cut(text)
    ends = [window.surface(i) for i, mark in enumerate(window.sentence_ends()) if mark]
    assert [end[-1] for end in ends] == [".", "!", "y"]


@settings(deadline=None)
@given(text=wordy.map(" ".join))
def test_there_is_at_most_one_sentence_end_per_sentence_and_the_last_token_is_one(text):
    from textnuggets.io.sentences import sentence_spans

    for window in cut(text):
        marks = window.sentence_ends()
        ordinary = [i for i, (a, b) in enumerate(map(window.span, range(len(marks)))) if a < b]
        if ordinary:
            assert marks[ordinary[-1]]
        assert sum(marks) <= max(1, len(sentence_spans(text[window.start : window.end])))


def test_windows_are_reused_only_for_the_same_text_tokenizer_and_limit():
    tokenizer, texts = byte_level_tokenizer(), CORPUS[:3]
    known = dict(zip(texts[:2], cut_into_windows(tokenizer, texts[:2], LIMIT), strict=True))
    with reusing(CutTexts(tokenizer, LIMIT, known)):
        first, fresh, second = cut_into_windows(tokenizer, [texts[0], texts[2], texts[1]], LIMIT)
        assert first is known[texts[0]]
        assert second is known[texts[1]]
        assert {window.text for window in fresh} == {texts[2]}
        assert cut_into_windows(tokenizer, texts[:1], LIMIT)[0] is first
        assert cut_into_windows(tokenizer, texts[:1], LIMIT - 1)[0] is not first
        assert cut_into_windows(byte_level_tokenizer(), texts[:1], LIMIT)[0] is not first
    assert cut_into_windows(tokenizer, texts[:1], LIMIT)[0] is not first
