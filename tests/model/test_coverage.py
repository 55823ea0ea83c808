"""Warnings about languages and characters unknown to a model."""

from __future__ import annotations

import warnings

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

import textnuggets
from tests.tiny import BOS, CONFIGS, CORPUS, EOS, UNK, tiny_model
from textnuggets import NuggetConfig, NuggetModel
from textnuggets.bulk.encode import encode_to_parquet
from textnuggets.errors import TextnuggetsWarning
from textnuggets.io.documents import Document
from textnuggets.model.coverage import INSIDE, Coverage, collecting, one_warning, vocabulary_of

GERMAN = "Der Hund lag vor der Haustuer und wartete auf den Regen, der jeden Morgen wiederkam."


@pytest.fixture(scope="module")
def reader() -> NuggetModel:
    """Model whose tokenizer has the words of the corpus, and single letters for all others."""
    known = [word for text in CORPUS for word in text.split()]
    words = sorted({"\u2581" + word[:end] for word in known for end in (*range(3, len(word)), len(word))})
    letters = ["\u2581", *"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.,;'"]
    specials = [(token, 0.0) for token in ("<pad>", "<s>", "</s>", "<unk>")]
    scores = [(word, -1.0) for word in words] + [(letter, -9.0) for letter in letters]
    tokenizer = Tokenizer(models.Unigram([*specials, *scores], UNK, False))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.post_processor = TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", BOS), ("</s>", EOS)]
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )
    config = CONFIGS["bart"]()
    config.vocab_size = len(fast)
    return NuggetModel.from_backbone(config, NuggetConfig(ratio=0.25, scorer_layer=1), fast)


def warning_of(action) -> str:
    with pytest.warns(TextnuggetsWarning) as given:
        action()
    (warning,) = given
    return str(warning.message)


def test_a_text_that_the_model_knows_gives_no_warning(reader):
    reader.encode(CORPUS * 5)


def test_another_language_is_named_with_its_share_and_examples(reader):
    message = warning_of(lambda: reader.encode([GERMAN] * 3))
    assert "% of the words are rare to the model" in message
    assert "(as in 'Haustuer', '" in message
    assert "it may not know the language" in message


@pytest.mark.parametrize("name", ["search", "reconstruct"])
def test_two_german_sentences_are_noticed_by_both_shipped_models(name):
    text = (
        "Der Hund lief ins Haus, und niemand wusste, warum er so schnell nach Hause wollte, obwohl es regnete. "
        "Die Bewohner warteten anschlie\u00dfend, weil wegen des Hochwassers niemand gehen konnte."
    )
    assert "it may not know the language" in warning_of(lambda: textnuggets.load(name).encode(text))


def test_a_few_foreign_words_say_nothing(reader):
    reader.encode("Der Hund wartete")
    reader.encode([*CORPUS * 20, GERMAN])


def test_a_tokenizer_of_characters_says_nothing_of_the_language(model):
    assert not (vocabulary_of(model.tokenizer).kinds == INSIDE).any()


def test_byte_pieces_continue_a_word(reader):
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(reader.tokenizer._tokenizer.to_str())
    )
    tokenizer.add_tokens(["<0xE4>"])
    assert vocabulary_of(tokenizer).kinds[tokenizer.convert_tokens_to_ids("<0xE4>")] == INSIDE


def test_unknown_pieces_are_named_however_short_the_text():
    encoder = tiny_model("bert")
    message = warning_of(lambda: encoder.encode("The cat sat on 猫猫"))
    assert "of the pieces are unknown to the model (as in '猫猫')" in message
    assert "decoded" not in message


def test_a_rare_unknown_character_among_many_known_ones_says_nothing_to_an_encoder():
    tiny_model("bert").encode([*CORPUS * 40, "猫"])


def test_a_character_that_cannot_be_written_is_named_and_both_warnings_are_one(model):
    message = warning_of(lambda: model.encode([*CORPUS * 40, "the | cat ½"]))
    assert message == "cannot be decoded again: '|', '½'."
    message = warning_of(lambda: model.encode("the | cat ½"))
    assert "unknown to the model" in message
    assert message.endswith("; cannot be decoded again: '|', '½'.")


def test_only_some_of_many_characters_are_named(model):
    message = warning_of(lambda: model.encode("".join(chr(0x4E00 + i) for i in range(20))))
    assert message.endswith("and 12 more.")


def test_white_space_and_composed_characters_are_not_lost(model):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.encode("the cat\n\tsat\u00a0on")
    assert vocabulary_of(model.tokenizer).lost(model.tokenizer, "\n\t a") == []


def test_a_character_is_looked_up_once(model):
    vocabulary = vocabulary_of(model.tokenizer)
    assert vocabulary.lost(model.tokenizer, "a½") == ["½"]
    assert vocabulary.lost(None, "½a") == ["½"]  # without the tokenizer


def test_a_stream_warns_at_its_end(model):
    stream = model.encode_iter(["the ½"] * 3)
    next(stream)
    assert "½" in warning_of(lambda: list(stream))


def test_several_calls_may_share_one_warning(model):
    def both():
        with one_warning():
            model.encode("the ½")
            model.encode("the |")

    assert warning_of(both).endswith("cannot be decoded again: '½', '|'.")
    counted = Coverage()
    with collecting(counted):
        model.encode("the ½")
    again = Coverage()
    again.merge(Coverage(**counted.as_dict()))
    assert again.message() == counted.message()


def test_a_file_of_several_parts_gives_one_warning(model, tmp_path, monkeypatch):
    from textnuggets.bulk import encode as bulk

    monkeypatch.setattr(bulk, "PART_TEXTS", 2)
    documents = [Document(str(i), f"the {sign}") for i, sign in enumerate("½|½|½")]
    message = warning_of(lambda: encode_to_parquet(model, documents, tmp_path / "a.parquet", name="m"))
    assert message.endswith("'|', '½'.")
