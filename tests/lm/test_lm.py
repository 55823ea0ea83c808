"""Language models with compressed history: no leaks, no gaps, and streams that equal batches."""

from __future__ import annotations

import json
import math
import shutil
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tests.tiny import CORPUS, DECODERS, tiny_model, tiny_tokenizer
from tests.train.setting import losses, make_setting
from textnuggets import NuggetLM, load
from textnuggets.cli import main
from textnuggets.errors import BackboneError, CheckpointError, ConfigError, InputError
from textnuggets.lm.history import History
from textnuggets.lm.perplexity import evaluate_perplexity, make_article, past_spans, read_articles, windows_of
from textnuggets.lm.repeats import KINDS, last_said
from textnuggets.lm.stream import Stream
from textnuggets.lm.wikitext import split_words, write_out
from textnuggets.train.language_model import SegmentBatches
from textnuggets.train.reading import read_recipe
from textnuggets.train.run import train

SIZE = 16  # tokens of a segment
LONG = " ".join(CORPUS * 2)


def make_lm(family="bart", history=3, **settings):
    torch.manual_seed(0)
    lm = NuggetLM.from_nuggets(tiny_model(family), segment=SIZE, history=history, **settings)
    with torch.no_grad():
        lm.ages.weight.normal_()  # so that it makes a difference
    return lm


def ids_of(text=LONG):
    return tiny_tokenizer()(text, add_special_tokens=False).input_ids


def logits(lm, ids, past):
    """The logits of a segment after past segments."""
    with torch.no_grad():
        history = History.of([lm.remember(past)]) if past else None
        return lm(torch.tensor([ids]), history).logits[0]


def segments(count, ids=None):
    ids = ids_of() if ids is None else ids
    return [ids[i * SIZE : (i + 1) * SIZE] for i in range(count)]


# -------------------------------------------------------------------- what is read, and what is not


@pytest.mark.parametrize("family", DECODERS)
def test_a_later_token_changes_no_earlier_logit(family):
    lm = make_lm(family)
    first, second, current = segments(3)
    before = logits(lm, current, [first, second])
    changed = logits(lm, [*current[:-1], 7], [first, second])
    torch.testing.assert_close(before[:-1], changed[:-1])
    # The logit of a place predicts its own token, so that not even the last one sees it.
    torch.testing.assert_close(before[-1], changed[-1])
    assert not torch.allclose(before, logits(lm, [7, *current[1:]], [first, second]))


def test_history_is_read_and_what_lies_beyond_it_is_not():
    lm = make_lm(history=2)
    article = make_article(split_words(LONG), tiny_tokenizer())
    other = make_article(split_words(LONG), tiny_tokenizer())
    other.ids[: 2 * SIZE] = 9  # the first two segments
    whole = [evaluate_perplexity(lm, [a], [2])[0]["token_perplexity"]["value"] for a in (article, other)]
    assert whole[0] != whole[1]
    from textnuggets.lm import perplexity

    def score(a, history):
        windows = windows_of([a], SIZE, SIZE)
        window = windows[4:5]  # sees segments 2 and 3 with h = 2, and 1 to 3 with h = 3
        spans = past_spans(window[0].start, SIZE, history)
        with torch.inference_mode():
            made = lm.remember([a.ids[s:e].tolist() for s, e in spans])
            memories = {(0, *span): memory for span, memory in zip(spans, made, strict=True)}
            return perplexity._predict(lm, [a], window, memories, history)[0]

    assert np.abs(score(article, 2) - score(other, 2)).max() == 0
    assert np.abs(score(article, 3) - score(other, 3)).max() > 1e-6


@pytest.mark.parametrize("family", DECODERS)
def test_without_history_it_is_the_decoder_without_cross_attention(family):
    lm = make_lm(family)
    (current,) = segments(1)
    ids = torch.tensor([current])
    with torch.no_grad():
        decoder = lm.nugget.backbone.get_decoder()
        states = decoder(input_ids=lm.begin(ids), use_cache=False).last_hidden_state
        expected = lm.view.project(states)[0]
    torch.testing.assert_close(logits(lm, current, []), expected)


def test_rows_without_a_past_are_not_touched_by_those_with_one():
    lm = make_lm()
    first, second, third = segments(3)
    with torch.no_grad():
        past = lm.remember([first, second])
        history = History.of([[], past, past[1:]])
        together = lm(torch.tensor([third] * 3), history).logits
    for row, memories in enumerate(([], [first, second], [second])):
        torch.testing.assert_close(together[row], logits(lm, third, memories), atol=1e-5, rtol=1e-5)


def test_the_order_of_the_past_matters():
    lm = make_lm()
    first, second, third = segments(3)
    assert not torch.allclose(logits(lm, third, [first, second]), logits(lm, third, [second, first]))


def test_tokens_as_memory_are_a_longer_context():
    lm = make_lm(memory="tokens", history=2)
    first, second, third = (torch.tensor([part]) for part in segments(3))
    with torch.no_grad():
        found = lm(third, context=torch.cat([first, second], 1)).logits
        whole = lm(torch.cat([first, second, third], 1)).logits[:, 2 * SIZE :]
    torch.testing.assert_close(found, whole)


def test_a_compressive_memory_is_the_mean_of_what_was_read():
    lm = make_lm(memory="compressive", history=2, pooled=4)
    first, second, third = (torch.tensor([part]) for part in segments(3))
    with torch.no_grad():
        cache = lm._compress(torch.cat([first, second], 1))
        keys = lm.view.keys_and_values(lm.begin(torch.cat([first, first[:, :1]], 1)))[0][0]
        assert cache.layers[0].keys.shape[2] == 2 * SIZE // 4
        torch.testing.assert_close(cache.layers[0].keys[:, :, 0], keys[:, :, 1:5].mean(2))
        found = lm(third, context=torch.cat([first, second], 1)).logits
        other = lm(third, context=torch.cat([second, first], 1)).logits
    assert not torch.allclose(found, other)


@pytest.mark.parametrize("memory", ["tokens", "compressive"])
def test_every_token_of_the_context_is_remembered_and_none_that_comes_later(memory):
    lm = make_lm(memory=memory, history=2, pooled=4)
    context, current = (torch.tensor([part]) for part in segments(2))
    with torch.no_grad():
        found = lm(current, context=context).logits
        for place in range(SIZE):
            other = context.clone()
            other[0, place] = 9 if context[0, place] != 9 else 10
            assert not torch.allclose(lm(current, context=other).logits, found)
        later = current.clone()
        later[0, -1] = 9 if current[0, -1] != 9 else 10
        torch.testing.assert_close(lm(later, context=context).logits, found)


# -------------------------------------------------------------------- streams


@pytest.mark.parametrize("family", ["bart", "marian", "t5"])
def test_streaming_equals_evaluating_in_batches(family):
    lm = make_lm(family)
    ids = ids_of()
    found = lm.open("").score(ids)
    (result,) = evaluate_perplexity(lm, [make_article(split_words(LONG), tiny_tokenizer())])
    assert math.exp(-np.mean(found)) == pytest.approx(result["token_perplexity"]["value"], rel=1e-4)
    # In pieces, it is the same stream.
    stream = lm.open(ids[:5])
    pieces = stream.score(ids[5:40]) + stream.score(ids[40:])
    assert pieces == pytest.approx(found[5:], abs=1e-4)


def test_memory_stays_the_same_however_long_the_text():
    stream = make_lm(history=2).open(ids_of() * 10)
    assert len(stream.past) == 2
    assert len(stream.current) < SIZE
    assert stream.length == 10 * len(ids_of())
    wide = make_lm(history=2).open(ids_of() * 10, max_history=5)
    assert len(wide.past) == 5


def test_generating_goes_on_past_segments_and_greedy_is_what_scoring_prefers():
    lm = make_lm()
    stream = lm.open(CORPUS[0])
    shown = []
    length = stream.length
    text = stream.generate(3 * SIZE, shown.append)
    assert "".join(shown) == text
    assert stream.length == length + 3 * SIZE
    # Greedy: of every generated token, no other that may be written is more likely.
    again = lm.open(CORPUS[0])
    new = again._continue(SIZE - len(again.current), None, {})
    state = lm.open(CORPUS[0])
    allowed = [i for i in range(len(tiny_tokenizer())) if i not in tiny_tokenizer().all_special_ids]
    for token in new:
        scores = {other: lm_score(state, other) for other in (token, *allowed[::7])}
        assert max(scores, key=scores.get) == token
        state.append([token])


def lm_score(stream, token):
    copy = Stream(stream.lm, stream.max_history)
    copy.past, copy.current, copy.length = list(stream.past), list(stream.current), stream.length
    return copy.score([token])[0]


def test_sampling_and_beams_go_through_transformers_generate():
    lm = make_lm()
    torch.manual_seed(1)
    drawn = {lm.open(CORPUS[0]).generate(10, do_sample=True, temperature=5.0) for _ in range(3)}
    assert len(drawn) == 3

    def likelihood(ids):
        return sum(lm.open(CORPUS[0]).score(ids))

    assert likelihood(beams_ids(lm, 4)) >= likelihood(beams_ids(lm, 1)) - 1e-4


def beams_ids(lm, beams):
    stream = lm.open(CORPUS[0])
    return stream._continue(SIZE - len(stream.current), None, {"num_beams": beams})


def test_a_stream_is_saved_and_continued(tmp_path):
    lm = make_lm()
    stream = lm.open(LONG)
    stream.save(tmp_path / "state")
    again = Stream.load(lm, tmp_path / "state")
    assert again.length == stream.length
    assert again.generate(20) == stream.generate(20)
    with pytest.raises(InputError, match="other weights"):
        Stream.load(NuggetLM.from_nuggets(tiny_model(scorer_layer=2), segment=SIZE), tmp_path / "state")
    (tmp_path / "state").write_bytes(b"broken")
    with pytest.raises(InputError, match="no saved stream"):
        Stream.load(lm, tmp_path / "state")


# -------------------------------------------------------------------- perplexity


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
    path.write_text("\n")
    with pytest.raises(InputError, match="no text"):
        read_articles(str(path), tiny_tokenizer())


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


# -------------------------------------------------------------------- keeping


def test_a_language_model_is_saved_and_loaded(tmp_path):
    lm = make_lm()
    lm.save_pretrained(tmp_path)
    again = NuggetLM.from_pretrained(tmp_path)
    assert again.config.segment == SIZE
    torch.testing.assert_close(
        logits(again, segments(3)[2], segments(2)), logits(lm, segments(3)[2], segments(2))
    )
    assert again.open(CORPUS[0]).generate(5) == lm.open(CORPUS[0]).generate(5)


def test_only_what_differs_from_the_base_is_stored(tmp_path):
    tiny_model().save_pretrained(tmp_path / "base")
    base = load(tmp_path / "base")
    lm = NuggetLM.from_nuggets(load(tmp_path / "base"), segment=SIZE)
    with torch.no_grad():
        for weight in lm.view.decoder.layers.parameters():
            weight += 0.01
    lm.save_difference(tmp_path / "lm", str(tmp_path / "base"), base)
    again = NuggetLM.from_pretrained(tmp_path / "lm")
    torch.testing.assert_close(
        logits(again, segments(3)[2], segments(2)), logits(lm, segments(3)[2], segments(2)), atol=0.05, rtol=0
    )
    assert str(tmp_path) not in (tmp_path / "lm" / "config.json").read_text().replace(
        f'"base": "{tmp_path}', ""
    )
    places = json.loads((tmp_path / "lm" / "compact.json").read_text())["tensors"]
    assert not any("encoder.layers" in name for name in places)
    other = tiny_model(scorer_layer=2)
    shutil.rmtree(tmp_path / "base")
    other.save_pretrained(tmp_path / "base")
    with pytest.raises(CheckpointError, match="goes with the model"):
        NuggetLM.from_pretrained(tmp_path / "lm")


def test_the_language_model_of_the_package_reads_its_history(tmp_path, run):
    lm = NuggetLM.from_pretrained("lm")
    text = "The satellite was launched in October. " * 40
    scores = [np.mean(lm.open(text, max_history=h).score(" The satellite was launched")) for h in (0, 8)]
    assert scores[0] != pytest.approx(scores[1], abs=1e-3)
    (tmp_path / "text.txt").write_text(text)
    done = run("lm", "generate", "lm", "--history", tmp_path / "text.txt", "-n", 3)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert "nuggets" in done.stderr
    with pytest.raises(CheckpointError, match="is a language model"):
        load("lm")


def test_what_cannot_model_language_is_refused(tmp_path):
    with pytest.raises(BackboneError, match="no decoder to model language"):
        NuggetLM.from_nuggets(tiny_model("bert"), segment=SIZE)
    with pytest.raises(ConfigError, match="positions are needed"):
        NuggetLM.from_nuggets(tiny_model(), segment=500)
    with pytest.raises(ConfigError, match="memory must be one of"):
        make_lm(memory="all")
    with pytest.raises(ConfigError, match="cannot be pooled"):
        make_lm(memory="compressive", pooled=5)
    with pytest.raises(ConfigError, match="only nuggets can"):
        make_lm(memory="tokens").open("")
    with pytest.raises(ConfigError, match="the encoder has room for 64"):
        NuggetLM.from_nuggets(tiny_model(), segment=64)
    with pytest.raises(ConfigError, match="'sentence_boundary' cannot choose"):
        NuggetLM.from_nuggets(tiny_model(selector="sentence_boundary"), segment=SIZE)
    with pytest.raises(ConfigError, match="positions are needed"):
        evaluate_perplexity(
            make_lm(memory="tokens"), [make_article(split_words(LONG), tiny_tokenizer())], [9]
        )
    tiny_model().save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match="not a language model"):
        NuggetLM.from_pretrained(tmp_path)


# -------------------------------------------------------------------- training


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lm")
    made = make_setting(folder)
    tiny_model().save_pretrained(folder / "start")
    texts = [{"text": " ".join(CORPUS[(i + j) % 5] for j in range(6))} for i in range(10)]
    (folder / "train.jsonl").write_text("".join(json.dumps(text) + "\n" for text in texts))
    made.write_text(made.read_text().replace(f'backbone = "{folder}/backbone"', f'start = "{folder}/start"'))
    return made


LM = ["objective.name=language_model", f"model.segment={SIZE}", "model.history=3"]


@pytest.mark.parametrize(
    "changes",
    [
        ["objective.histories=[1, 3]"],
        ["objective.train_encoder=true"],
        ["model.memory=tokens", "model.history=2", "objective.histories=[1, 2]"],
        ["model.memory=compressive", "model.pooled=4"],
        ["objective.histories=[0]"],
        ["objective.sampled_softmax=100"],
    ],
)
def test_every_kind_of_language_model_learns(recipe, tmp_path, changes):
    best = train(read_recipe(recipe, [*LM, "optimizer.lr=3e-3", *changes]), tmp_path / "run")
    found = losses(tmp_path / "run")
    assert np.mean([found[i] for i in (10, 11, 12)]) < np.mean([found[i] for i in (1, 2, 3)])
    assert NuggetLM.from_pretrained(best).config.segment == SIZE


def test_a_fixed_encoder_stays_as_it_is_and_its_nuggets_are_computed_once(recipe, tmp_path, monkeypatch):
    changes = [*LM, "optimizer.steps=3", "report.evaluate_every=3"]
    best = train(read_recipe(recipe, changes), tmp_path / "run")
    after = NuggetLM.from_pretrained(best).nugget.state_dict()
    moved = {name for name, value in tiny_model().state_dict().items() if not torch.equal(value, after[name])}
    assert moved
    assert all("decoder" in name for name in moved)
    monkeypatch.setattr(NuggetLM, "remember", lambda *_: pytest.fail("encoded again"))
    train(read_recipe(recipe, changes), tmp_path / "again")
    assert losses(tmp_path / "again") == losses(tmp_path / "run")


def test_nuggets_from_the_cache_are_those_computed_on_the_way(recipe, tmp_path):
    """But for float16, in which they are kept."""
    changes = [*LM, "optimizer.lr=1e-9", "optimizer.steps=6", "model.dropout=0.0"]
    train(read_recipe(recipe, changes), tmp_path / "cached")
    train(read_recipe(recipe, [*changes, "objective.train_encoder=true"]), tmp_path / "computed")
    cached, computed = losses(tmp_path / "cached"), losses(tmp_path / "computed")
    assert list(cached.values()) == pytest.approx(list(computed.values()), rel=2e-3)


def test_settings_the_start_does_not_have_and_texts_without_history_are_refused(recipe, tmp_path):
    with pytest.raises(ConfigError, match=r"model\.selector is 'mean', but .* has 'learned'"):
        train(read_recipe(recipe, [*LM, "model.selector=mean"]), tmp_path / "run")
    (tmp_path / "short.jsonl").write_text('{"text": "cat"}\n' * 3)
    with pytest.raises(InputError, match="no text is longer than a segment"):
        train(read_recipe(recipe, [*LM, f'data.train=["{tmp_path / "short.jsonl"}"]']), tmp_path / "short")


def test_a_space_belongs_to_the_word_it_opens():
    """Also where the space is a token of its own."""
    text = "cat <unk> dog"
    spans = [(0, 3), (3, 4), (4, 9), (9, 10), (10, 13)]
    encoding = SimpleNamespace(ids=[0, 1, 2, 3, 4], offsets=spans)
    article = make_article(split_words(text), lambda *_, **__: SimpleNamespace(encodings=[encoding]))
    assert article.words.tolist() == [0, 1, 1, 2, 2]
    assert article.counted.tolist() == [True, False, True]


def test_the_segments_of_a_batch_have_equally_much_before_them():
    from textnuggets.lm.corpus import Place

    places = [Place(text, segment) for text in range(4) for segment in range(6)]
    batches = list(SegmentBatches(places, [1, 3], 5, 40, seed=0))
    assert batches == list(SegmentBatches(places, [1, 3], 5, 40, seed=0))
    seen = set()
    for batch in batches:
        (history,) = {target.history for target in batch}
        seen.add(history)
        assert all(target.place.segment >= history for target in batch)
    assert seen == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("objective.histories=[9]", "must lie from 0 to model.history"),
        ("optimizer.batch_tokens=8", "must hold"),
        ("objective.hide=0.1", "does not go with"),
        ("model.segment=1", "model.segment must be at least 2"),
        ("objective.ratios=[0.1]", "have one ratio"),
        ("optimizer.gradient_checkpointing=true", "does not go with"),
    ],
)
def test_recipes_that_cannot_be_are_refused(recipe, change, message):
    with pytest.raises(ConfigError, match=message):
        read_recipe(recipe, [*LM, change])


# -------------------------------------------------------------------- the commands


def test_the_commands_evaluate_and_generate(tmp_path, capsys, monkeypatch):
    make_lm().save_pretrained(tmp_path / "lm")
    (tmp_path / "text.txt").write_text(LONG)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["textnuggets", "lm", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code or 0, *capsys.readouterr()

    code, out, _ = run("evaluate", tmp_path / "lm", tmp_path / "text.txt", "--history", "0,1", "--json")
    assert code == 0
    assert [item["history"] for item in json.loads(out)["results"]] == [0, 1]
    assert json.loads(out)["versions"]["torch"]
    code, out, err = run("evaluate", tmp_path / "lm", tmp_path / "text.txt", "--out", tmp_path / "results")
    assert "h = 3: perplexity by word" in out
    assert "words" in err
    kept = json.loads((tmp_path / "results" / "perplexity.json").read_text())
    assert [item["history"] for item in kept["results"]] == [3]
    assert "| 3 |" in (tmp_path / "results" / "perplexity.md").read_text()
    code, out, err = run("generate", tmp_path / "lm", "--history", tmp_path / "text.txt", "-n", 12)
    assert code == 0
    assert out.strip()
    assert "3 segments as" in err
    for arguments, message in (
        (["generate", tmp_path / "lm", "--history", tmp_path / "none"], "no such file"),
        (["evaluate", tmp_path / "lm", tmp_path / "text.txt", "--stride", 5], "does not divide"),
        (["evaluate", tmp_path / "none", tmp_path / "text.txt"], "cannot load"),
        (["evaluate", tmp_path / "lm", tmp_path / "text.txt", "--out", tmp_path / "text.txt"], "is a file"),
    ):
        code, _, err = run(*arguments)
        assert code == 2
        assert message in err
