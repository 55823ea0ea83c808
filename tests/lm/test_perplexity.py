"""Perplexity: which tokens and words are scored, each once, the same for all models."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tokenizers import normalizers

from tests.lm.setting import LONG, SIZE, make_lm
from tests.tiny import CORPUS, tiny_tokenizer
from textnuggets.errors import ConfigError, InputError
from textnuggets.evaluate.perplexity import (
    default_stride,
    evaluate_perplexity,
    make_article,
    read_articles,
    show,
    windows_of,
)
from textnuggets.evaluate.repeats import KINDS, last_occurrence
from textnuggets.io.wikitext import read_wikitext, split_words, write_out


def test_perplexity_on_a_toy_computed_by_hand(monkeypatch):
    """Two words of two tokens and one, and one word that is not counted."""
    lm = make_lm()
    article = make_article(split_words("cat <unk> dog"), tiny_tokenizer())
    words = [article.words.tolist().count(word) for word in range(3)]
    assert sum(words) == len(article.ids)
    from textnuggets.evaluate import perplexity

    logs = np.log(np.linspace(0.1, 0.9, len(article.ids)))
    monkeypatch.setattr(perplexity, "_predict", lambda *_: [logs])
    (found,) = evaluate_perplexity(lm, [article])
    counted = [log for log, word in zip(logs, article.words, strict=True) if word != 1]
    assert found["words"] == 2
    assert found["word_perplexity"]["value"] == pytest.approx(math.exp(-sum(counted) / 2))
    assert found["token_perplexity"]["value"] == pytest.approx(math.exp(-np.mean(counted)))


def test_words_are_grouped_by_their_last_occurrence():
    forms = ["Ann", "met", "Ann", "Bob", "met", "Cid", "Ann", "x", "y", "Bob"]
    places = np.array([0, 1, 2, 3, 4, 5, 6, 7, 8, 8 + 8 * 4])
    found = [KINDS[kind] for kind in last_occurrence(forms, places, segment=4)]
    new, same, past = "not yet", "in its segment", "before it"
    # The second 'Bob' is in the segment of tokens 40 to 43, whose history starts at token 8.
    assert found == [new, new, same, new, past, new, past, new, new, new]
    assert KINDS[last_occurrence(["Bob", "Bob"], np.array([8, 40]), segment=4)[1]] == past


def test_counts_by_kind_add_up_to_the_total():
    lm = make_lm()
    articles = [make_article(split_words(text), tiny_tokenizer()) for text in (LONG, "Cat <unk> dog cat")]
    assert "by_kind" not in evaluate_perplexity(lm, articles)[0]  # segments overlap
    (found,) = evaluate_perplexity(lm, articles, stride=SIZE)
    cells = np.array([cell for row in found["by_kind"].values() for cell in row.values()])
    sums = np.array(found["by_article"]).sum(0)
    assert cells.sum(0) == pytest.approx(sums[:2], abs=0.01)
    assert found["by_kind"]["names"]["not yet"][1] >= 1


def test_every_token_is_scored_once_for_any_stride():
    articles = [make_article(split_words(text), tiny_tokenizer()) for text in (LONG, CORPUS[0], "cat")]
    for stride in (SIZE, SIZE // 2, SIZE // 4):
        seen = [np.zeros(len(article.ids)) for article in articles]
        for window in windows_of(articles, SIZE, stride):
            assert window.end - window.start <= SIZE
            seen[window.article][window.scored : window.end] += 1
        assert all((part == 1).all() for part in seen)


@pytest.mark.parametrize("memory", ["nuggets", "tokens", "compressive"])
def test_all_memories_score_the_same_tokens(memory):
    lm = make_lm(memory=memory, history=2, pooled=4)
    articles = [make_article(split_words(text), tiny_tokenizer()) for text in (LONG, CORPUS[1])]
    for stride in (SIZE, SIZE // 2):
        found = evaluate_perplexity(lm, articles, [0, 1, 2], stride=stride)
        alone = [evaluate_perplexity(lm, articles, [h], stride=stride)[0] for h in (0, 1, 2)]
        for one, item in zip(alone, found, strict=True):
            assert np.allclose(one["by_article"], item["by_article"], atol=2e-3)
        change = found[2]["word_perplexity"]["value"] / found[0]["word_perplexity"]["value"]
        assert found[2]["change"]["value"] == pytest.approx(change)
        assert found[2]["change"]["low"] <= change <= found[2]["change"]["high"]
        assert {(item["words"], item["tokens"]) for item in found} == {
            (found[0]["words"], found[0]["tokens"])
        }
        assert len({item["token_perplexity"]["value"] for item in found}) == 3


def test_only_files_of_text_have_headings_and_only_those_of_articles(tmp_path):
    (tmp_path / "notes.txt").write_text("One\n=====\n== two ==\nThe cat sat.\n")
    (article,) = read_articles(str(tmp_path / "notes.txt"), tiny_tokenizer())
    assert article.forms == ["One", "=====", "==", "two", "==", "The", "cat", "sat."]
    (tmp_path / "notes.txt.jsonl").write_text('{"text": "The cat sat."}\n{"text": "The dog."}\n')
    found = read_articles(str(tmp_path / "notes.txt.jsonl"), tiny_tokenizer())
    assert [article.forms for article in found] == [["The", "cat", "sat."], ["The", "dog."]]


def test_a_folder_is_its_files(tmp_path):
    (tmp_path / "a.txt").write_text(" = One = \n The cat\nsat .\n = Two = \n The dog .\n")
    (tmp_path / "b.jsonl").write_text('{"text": "The cat."}\n')
    found = read_articles(str(tmp_path), tiny_tokenizer())
    assert [article.forms for article in found] == [
        ["The", "cat", "sat", "."],
        ["The", "dog", "."],
        ["The", "cat."],
    ]


def test_a_long_text_is_encoded_in_parts(monkeypatch):
    articles = [make_article(split_words(text), tiny_tokenizer()) for text in (LONG, CORPUS[0])]
    whole = evaluate_perplexity(make_lm(), articles, [0, 2])
    monkeypatch.setattr("textnuggets.evaluate.perplexity.WINDOWS", 3)
    lm, encoded = make_lm(), []
    remember = lm.remember
    monkeypatch.setattr(
        lm, "remember", lambda texts, ratio: encoded.append(len(texts)) or remember(texts, ratio)
    )
    parts = evaluate_perplexity(lm, articles, [0, 2])
    for one, other in zip(whole, parts, strict=True):
        assert np.allclose(one["by_article"], other["by_article"], atol=2e-3)
    assert len(encoded) > 3
    assert max(encoded) <= 3 * 2


def test_articles_begin_with_headings_as_in_wikitext(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(" = One = \n The cat sat .\n = = Part = = \n More .\n = Two = \n The dog .\n")
    found = read_articles(str(path), tiny_tokenizer())
    assert [len(article.counted) for article in found] == [4 + 2, 3]
    assert [int(article.words.max()) + 1 for article in found] == [4 + 2, 3]
    path.write_text(" = One = \n <unk> <unk>\n = Two = \n The dog .\n")
    assert len(read_articles(str(path), tiny_tokenizer())) == 1
    for text, words in (("\n", "no text"), ("<unk> <unk>\n", "no word to predict, only <unk>")):
        path.write_text(text)
        with pytest.raises(InputError, match=words):
            read_articles(str(path), tiny_tokenizer())


def test_a_formula_between_equals_signs_is_no_title():
    lines = [
        "= Filter =",
        "A frequency of ω",
        "= 1 rad / s and an impedance k =",
        "1 Ω . Its inductance is L",
        "= 1 henry and its capacitance C =",
        "1 farad .",
        "= = Sources = =",
        "A list of names",
        "= Rain =",
        "Rain falls .",
        "= 2011 season =",
        "2011 was wet .",
    ]
    expected = [
        "A frequency of ω = 1 rad / s and an impedance k = 1 Ω. Its inductance is L = 1 henry and its capacitance C = "
        "1 farad. A list of names",
        "Rain falls.",
        "2011 was wet.",
    ]
    assert [found.text for found in read_wikitext(lines)] == expected

    # In the original files, empty lines surround headings, whatever the text around them.
    spaced = ["= Names =", "", "A list of names", "", "= 2011 season =", "", "2011 was wet ."]
    assert [found.text for found in read_wikitext(spaced)] == ["A list of names", "2011 was wet."]


def test_the_ratio_changes_the_memory():
    articles = [make_article(split_words(LONG), tiny_tokenizer())]
    own, same, other = (evaluate_perplexity(make_lm(), articles, ratio=r)[0] for r in (None, 0.25, 0.5))
    assert own == same
    assert other["token_perplexity"]["value"] != own["token_perplexity"]["value"]
    assert (own["ratio"], other["ratio"]) == (0.25, 0.5)
    with pytest.raises(ConfigError, match="ratio must lie in"):
        evaluate_perplexity(make_lm(), articles, [0], ratio=7)
    with pytest.raises(ConfigError, match="'tokens' has no ratio"):
        evaluate_perplexity(make_lm(memory="tokens", history=1), articles, ratio=0.5)


@pytest.mark.parametrize(("segment", "stride"), [(128, 32), (16, 4), (6, 1), (2, 1), (7, 1), (18, 3)])
def test_a_segment_has_three_quarters_of_context_by_default(segment, stride):
    assert default_stride(segment) == stride


def test_the_stride_sets_the_context_of_each_token():
    lm = make_lm(history=0)
    article = make_article(split_words(LONG), tiny_tokenizer())
    (found,) = evaluate_perplexity(lm, [article])
    logs = []
    for place, token in enumerate(article.ids):
        start = 0 if place < SIZE else place // 4 * 4 + 4 - SIZE
        with torch.no_grad():
            window = torch.from_numpy(article.ids[start : place + 1])[None]
            logs.append(float(lm(window).logits[0, -1].log_softmax(-1)[token]))
    assert found["stride"] == 4
    assert found["token_perplexity"]["value"] == pytest.approx(np.exp(-np.mean(logs)), rel=1e-5)


def test_overflowing_perplexity_and_words_without_tokens():
    lm = make_lm()
    articles = [make_article(split_words(text), tiny_tokenizer()) for text in ("cat" * 900, "dog")]
    (found,) = evaluate_perplexity(lm, articles)
    assert json.loads(json.dumps(found["word_perplexity"], allow_nan=False))["value"] is None
    assert show(found["word_perplexity"]) == "too large"
    assert found["token_perplexity"]["value"] < 1000
    plain = make_article(split_words("the cat sat"), tiny_tokenizer())
    stripped = tiny_tokenizer()
    stripped.backend_tokenizer.normalizer = normalizers.Replace("\u200b", "")
    odd = make_article(split_words("the \u200b cat sat"), stripped)
    assert odd.counted.tolist() == [True, False, True, True]
    assert plain.counted.all()


def test_one_article_has_no_interval():
    articles = [make_article(split_words(text), tiny_tokenizer()) for text in (LONG, CORPUS[0])]
    one, two = (evaluate_perplexity(make_lm(), articles[:n], [0, 1])[1] for n in (1, 2))
    for name in ("word_perplexity", "token_perplexity", "change"):
        assert one[name]["low"] is one[name]["high"] is None
        assert two[name]["low"] < two[name]["value"] < two[name]["high"]
    assert show(one["change"], 3) == f"{one['change']['value']:.3f}"
    assert show(two["change"], 1).endswith(f"({two['change']['low']:.1f} to {two['change']['high']:.1f})")


def test_wikitext_is_converted_to_ordinary_text_and_keeps_its_words():
    written = (
        "It said \" the 1 @,@ 200 well @-@ known ( 5 – 6 cm ) lobster 's pots \" ; don 't ask , or <unk> .",
        '" Yes " , 0 @.@ 7 % of it – all .',
    )
    found = write_out(written)
    assert found.text == (
        'It said "the 1,200 well-known (5–6 cm) lobster\'s pots"; don\'t ask, or <unk>. "Yes", 0.7% of it – all.'
    )
    words = " ".join(written).split()
    assert len(found.ends) == len(words)
    starts = [0, *found.ends[:-1]]
    cut = [found.text[start:end].strip() for start, end in zip(starts, found.ends, strict=True)]
    plain = {"@,@": ",", "@-@": "-", "@.@": "."}
    assert cut == [plain.get(word, word) for word in words]


def test_a_space_belongs_to_the_word_after_it():
    """Also if the space is a separate token."""
    text = "cat <unk> dog"
    spans = [(0, 3), (3, 4), (4, 9), (9, 10), (10, 13)]
    encoding = SimpleNamespace(ids=[0, 1, 2, 3, 4], offsets=spans)
    article = make_article(split_words(text), lambda *_, **__: SimpleNamespace(encodings=[encoding]))
    assert article.words.tolist() == [0, 1, 1, 2, 2]
    assert article.counted.tolist() == [True, False, True]
