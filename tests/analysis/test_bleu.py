"""BLEU by sacrebleu."""

from __future__ import annotations

import sys

import pytest

from textnuggets.analysis.bleu import Bleu
from textnuggets.errors import MissingExtraError

TEXTS, REFERENCES = ["the cat sat on a mat", "Yes."], ["the cat sat on the mat", "Yes."]


def test_scores_are_those_of_sacrebleu():
    metrics = pytest.importorskip("sacrebleu.metrics.bleu")
    expected = metrics.BLEU(tokenize="13a").corpus_score(TEXTS, [REFERENCES]).score
    assert Bleu().corpus(TEXTS, REFERENCES) == expected
    sentence = metrics.BLEU(effective_order=True).sentence_score("Yes, no.", ["Yes."]).score
    assert Bleu(effective_order=True).sentence("Yes, no.", "Yes.") == sentence


def test_the_signature_names_the_tokenizer_of_the_language():
    pytest.importorskip("sacrebleu")
    for language, tokenizer in (("zh", "zh"), ("zh_CN", "zh"), ("fr", "13a")):
        bleu = Bleu(language=language)
        assert bleu.corpus(["一二三四五"], ["一二三四五"]) >= 0
        assert f"nrefs:1|case:mixed|eff:no|tok:{tokenizer}|" in bleu.signature


def test_a_missing_sacrebleu_is_an_error_that_names_the_purpose(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics.bleu", None)
    with pytest.raises(MissingExtraError, match=r"--against needs the package 'sacrebleu'"):
        Bleu("--against")
