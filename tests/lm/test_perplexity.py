"""Perplexity: which tokens and words count, each once, the same for all models."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

from tests.lm.setting import LONG, SIZE, make_lm
from tests.tiny import CORPUS, tiny_tokenizer
from textnuggets.errors import InputError
from textnuggets.lm.perplexity import evaluate_perplexity, make_article, read_articles, show, windows_of
from textnuggets.lm.repeats import KINDS, last_said
from textnuggets.lm.wikitext import split_words, write_out


def test_perplexity_on_a_toy_computed_by_hand(monkeypatch):
    """Two words, of two and one tokens, and one that does not count."""
    lm = make_lm()
    article = make_article(split_words("cat <unk> dog"), tiny_tokenizer())
    words = [article.words.tolist().count(word) for word in range(3)]
    assert sum(words) == len(article.ids)
    from textnuggets.lm import perplexity

    logs = np.log(np.linspace(0.1, 0.9, len(article.ids)))
    monkeypatch.setattr(perplexity, "_predict", lambda *_: [logs])
    (found,) = evaluate_perplexity(lm, [article])
    counted = [log for log, word in zip(logs, article.words, strict=True) if word != 1]
    assert found["words"] == 2
    assert found["word_perplexity"]["value"] == pytest.approx(math.exp(-sum(counted) / 2))
    assert found["token_perplexity"]["value"] == pytest.approx(math.exp(-np.mean(counted)))


def test_words_are_told_apart_by_where_they_were_said_last():
    forms = ["Ann", "met", "Ann", "Bob", "met", "Cid", "Ann", "x", "y", "Bob"]
    places = np.array([0, 1, 2, 3, 4, 5, 6, 7, 8, 8 + 8 * 4])
    found = [KINDS[kind] for kind in last_said(forms, places, segment=4)]
    new, same, past = "not yet", "in its segment", "before it"
    # 'Bob' again stands in the segment of tokens 40 to 43, which looks back as far as token 8.
    assert found == [new, new, same, new, past, new, past, new, new, new]
    assert KINDS[last_said(["Bob", "Bob"], np.array([8, 40]), segment=4)[1]] == past


def test_what_is_counted_by_kind_is_what_is_counted_at_all():
    lm = make_lm()
    articles = [make_article(split_words(text), tiny_tokenizer()) for text in (LONG, "Cat <unk> dog cat")]
    (found,) = evaluate_perplexity(lm, articles)
    cells = np.array([cell for row in found["by_kind"].values() for cell in row.values()])
    sums = np.array(found["by_article"]).sum(0)
    assert cells.sum(0) == pytest.approx(sums[:2], abs=0.01)
    assert found["by_kind"]["names"]["not yet"][1] >= 1


def test_every_token_is_scored_once_whatever_the_stride():
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


def test_articles_begin_with_headings_as_in_wikitext(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(" = One = \n The cat sat .\n = = Part = = \n More .\n = Two = \n The dog .\n")
    found = read_articles(str(path), tiny_tokenizer())
    assert [len(article.counted) for article in found] == [4 + 2, 3]
    assert [int(article.words.max()) + 1 for article in found] == [4 + 2, 3]
    path.write_text(" = One = \n <unk> <unk>\n = Two = \n The dog .\n")
    assert len(read_articles(str(path), tiny_tokenizer())) == 1
    for text, words in (("\n", "no text"), ("<unk> <unk>\n", "no word but <unk>")):
        path.write_text(text)
        with pytest.raises(InputError, match=words):
            read_articles(str(path), tiny_tokenizer())


def test_one_article_has_no_interval():
    articles = [make_article(split_words(text), tiny_tokenizer()) for text in (LONG, CORPUS[0])]
    one, two = (evaluate_perplexity(make_lm(), articles[:n], [0, 1])[1] for n in (1, 2))
    for name in ("word_perplexity", "token_perplexity", "change"):
        assert one[name]["low"] is one[name]["high"] is None
        assert two[name]["low"] < two[name]["value"] < two[name]["high"]
    assert show(one["change"], 3) == f"{one['change']['value']:.3f}"
    assert show(two["change"], 1).endswith(f"({two['change']['low']:.1f} to {two['change']['high']:.1f})")


def test_wikitext_is_written_as_people_write_and_keeps_its_words():
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


def test_a_space_belongs_to_the_word_it_opens():
    """Also where the space is a token of its own."""
    text = "cat <unk> dog"
    spans = [(0, 3), (3, 4), (4, 9), (9, 10), (10, 13)]
    encoding = SimpleNamespace(ids=[0, 1, 2, 3, 4], offsets=spans)
    article = make_article(split_words(text), lambda *_, **__: SimpleNamespace(encodings=[encoding]))
    assert article.words.tolist() == [0, 1, 1, 2, 2]
    assert article.counted.tolist() == [True, False, True]
