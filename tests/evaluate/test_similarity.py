"""Similarity: only scores help a system, and all systems are measured in the same way."""

from __future__ import annotations

import gzip
import json
import math
import shutil

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import textnuggets
from tests.tiny import CORPUS, tiny_model, tiny_tokenizer
from textnuggets import load
from textnuggets.errors import InputError
from textnuggets.evaluate import similarity as module
from textnuggets.evaluate.pooling_baselines import REDUCTIONS, ward
from textnuggets.evaluate.similarity import evaluate_similarity, interval, measure, rank, to_markdown
from textnuggets.evaluate.systems import make_system
from textnuggets.evaluate.task_builders import build_paraphrase, build_reranking, write_task
from textnuggets.evaluate.tasks import read_task
from textnuggets.model.maxsim import SIMILARITIES, both_ways, matching, one_way, unit
from textnuggets.report.figures import draw_similarity

CANDIDATES = 20
CHANCE = 100 * sum(1 / place for place in range(1, CANDIDATES + 1)) / CANDIDATES


@pytest.fixture(scope="module")
def first_is_right(tmp_path_factory):
    """Task whose file always lists the answer first, as the files of the paper's authors do."""
    folder = tmp_path_factory.mktemp("task")
    with gzip.open(folder / "docs.txt.gz", "wt") as docs:
        docs.writelines(f"L{i}\tquery {i}\nR{i}\tdocument {i}\n" for i in range(300))
    lines = [
        {"source": f"L{i}", "candidates": [f"R{(i + j) % 300}" for j in range(CANDIDATES)], "answer": 0}
        for i in range(300)
    ]
    (folder / "task.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def mean_reciprocal_rank(task, score):
    found = [
        rank(score(query, candidates), candidates, grades)
        for query, (candidates, grades) in enumerate(zip(task.candidates, task.grades, strict=True))
    ]
    return 100 * measure(found, task.grades, ["RR"])["RR"].mean()


def test_the_order_of_candidates_does_not_help(first_is_right):
    task = read_task(first_is_right)
    assert mean_reciprocal_rank(task, lambda _, c: -np.arange(len(c))) == pytest.approx(CHANCE, abs=4)


def test_a_constant_scorer_gets_no_more_than_chance(first_is_right):
    task = read_task(first_is_right)
    assert mean_reciprocal_rank(task, lambda _, c: np.zeros(len(c))) == pytest.approx(100 / CANDIDATES)
    assert mean_reciprocal_rank(task, lambda _, c: np.zeros(len(c))) < CHANCE


def test_a_scorer_that_knows_gets_everything(first_is_right):
    task = read_task(first_is_right)
    assert mean_reciprocal_rank(task, lambda q, c: np.array([float(i in task.grades[q]) for i in c])) == 100


def test_measures_are_what_their_formulas_say():
    ranking, grades = [[3, 1, 2, 0]], [{1: 2, 0: 1}]
    found = measure(ranking, grades, ["nDCG@10", "RR", "R@100"])
    expected = (2 / math.log2(3) + 1 / math.log2(5)) / (2 + 1 / math.log2(3))
    assert found["nDCG@10"][0] == pytest.approx(expected)
    assert found["RR"][0] == pytest.approx(1 / 2)
    assert found["R@100"][0] == 1


def test_an_interval_holds_the_mean_and_shrinks_with_more_queries():
    random = np.random.default_rng(0)
    few, many = (interval(random.random(count), 0) for count in (20, 2000))
    for found in (few, many):
        assert found["low"] <= found["mean"] <= found["high"]
    assert many["high"] - many["low"] < few["high"] - few["low"]


def test_a_score_that_is_not_a_number_is_an_error():
    with pytest.raises(InputError, match="not a finite number"):
        rank(np.array([0.1, math.nan]), [0, 1], {})


# -------------------------------------------------------------------- vectors


@given(st.integers(1, 40), st.floats(0.05, 1.0), st.sampled_from(["every", "random", "chunk_means", "ward"]))
def test_every_rule_keeps_as_many_vectors_as_asked_for(n, share, method):
    vectors = np.random.default_rng(n).normal(size=(n, 8)).astype(np.float32)
    k = max(1, round(n * share))
    found = REDUCTIONS[method](vectors, k)
    assert found.shape == (k, 8)


def test_ward_is_token_pooling_of_sentence_transformers():
    from sentence_transformers.multi_vector_encoder.modules import HierarchicalTokenPooling

    vectors = np.random.default_rng(0).normal(size=(40, 16)).astype(np.float32)
    unit = torch.nn.functional.normalize(torch.from_numpy(vectors), dim=-1)
    theirs = HierarchicalTokenPooling(pool_factor=10, num_protected_tokens=0).pool([unit])[0].numpy()
    ours = ward(vectors, 4)
    ours = ours / np.linalg.norm(ours, axis=1, keepdims=True)
    order = [row.tolist() for row in sorted(theirs, key=lambda r: r[0])]
    assert sorted(ours.tolist(), key=lambda r: r[0]) == [pytest.approx(row, abs=1e-5) for row in order]


def test_the_three_similarities_agree_on_one_vector_and_differ_on_several():
    random = np.random.default_rng(0)
    one = [unit(random.normal(size=(1, 4)), "text") for _ in range(3)]
    for similarity in SIMILARITIES.values():
        assert similarity(one[0], one).tolist() == pytest.approx(one_way(one[0], one).tolist(), abs=1e-6)
    query, document = (
        unit(np.array(vectors), "text")
        for vectors in ([[1.0, 0.0], [1.0, 0.1]], [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    )
    # Both query vectors want the same document vector; only one of them may have it.
    assert matching(query, [document])[0] < one_way(query, [document])[0]
    # The one that is left over takes the next best, at right angles; the sum is divided by all query vectors.
    cosine = query @ document.T
    assert matching(query, [document])[0] == pytest.approx((cosine[0, 0] + cosine[1, 1]) / 2)
    assert matching(document, [query])[0] == pytest.approx((cosine[0, 0] + cosine[1, 1]) / 3)
    back = one_way(document, [query])[0]
    assert both_ways(query, [document])[0] == pytest.approx((one_way(query, [document])[0] + back) / 2)
    # The document says things the query does not ask for.
    assert both_ways(query, [document])[0] < one_way(query, [document])[0]


# -------------------------------------------------------------------- systems and tasks


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    model = tiny_model("bert")
    model.save_pretrained(folder / "nuggets")
    model.backbone.save_pretrained(folder / "bare")
    tiny_tokenizer().save_pretrained(folder / "bare")
    return folder


@pytest.fixture(scope="module")
def retrieval(tmp_path_factory):
    folder = tmp_path_factory.mktemp("retrieval")
    corpus = [{"id": f"d{i}", "title": "", "text": text} for i, text in enumerate(CORPUS)]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(line) + "\n" for line in corpus))
    queries = [{"id": f"q{i}", "text": text} for i, text in enumerate(CORPUS)]
    (folder / "queries.jsonl").write_text("".join(json.dumps(line) + "\n" for line in queries))
    rows = [f"q{i}\td{i}\t1\nq{i}\td{(i + 1) % 5}\t4\nq{i}\td{(i + 2) % 5}\t-1\n" for i in range(5)]
    (folder / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(rows))
    return folder


def test_all_systems_stand_in_one_table_at_equal_numbers_of_vectors(models, retrieval):
    bare = models / "bare"
    few = [f"{bare}:{method}@0.2" for method in ("every", "random", "chunk_means", "ward", "chunking")]
    systems = ["bm25", f"{models / 'nuggets'}@0.2", *few, f"{bare}:all", f"{bare}:mean", f"{bare}:sentences"]
    found = evaluate_similarity(systems, read_task(retrieval, grades={1: 4, 4: 1}))
    rows = {row["system"]: row for row in found["results"]}
    assert list(rows) == systems
    assert {rows[name]["vectors"] for name in systems[1:7]} == {rows[systems[1]]["vectors"]}
    assert rows[f"{bare}:mean"]["vectors"] == 1
    assert rows["bm25"]["vectors"] is None
    # Every query is one of the documents, word for word, and that one is the best.
    for name in ("bm25", f"{bare}:all"):
        assert rows[name]["measures"]["RR"]["mean"] == 100
    table = to_markdown(found)
    assert table.count("\n| ") == len(systems)
    assert "5 queries, 5 documents" in table
    assert draw_similarity(found).axes


def test_all_tokens_of_a_system_are_those_of_the_encoder(models):
    system = make_system(f"{models / 'bare'}:all", one_way)
    scores = system.read(CORPUS[:1], CORPUS)(0, range(5))
    model = textnuggets.NuggetModel.from_backbone(
        models / "bare", textnuggets.NuggetConfig(selector="all_tokens", scorer_layer=0, feedback=False)
    )
    expected = textnuggets.maxsim(model.encode(CORPUS[0]), model.encode(CORPUS))
    assert np.abs(scores - expected).max() < 1e-6


def test_systems_have_labels_and_differ_query_by_query(models, first_is_right):
    task = read_task(first_is_right).head(20)
    assert len(task.documents) < 60
    names = ["bm25", f"few={models / 'nuggets'}@0.2", f"many={models / 'nuggets'}@0.9"]
    found = evaluate_similarity(names, task, baseline="few")
    bm25, few, many = found["results"]
    assert [row["system"] for row in found["results"]] == ["bm25", "few", "many"]
    assert "difference" not in few
    for row in (bm25, many):
        apart = row["measures"]["RR"]["mean"] - few["measures"]["RR"]["mean"]
        assert row["difference"]["RR"]["mean"] == pytest.approx(apart, abs=0.01)
        assert row["difference"]["RR"]["low"] <= apart <= row["difference"]["RR"]["high"]
    assert "MRR minus few" in to_markdown(found)
    with pytest.raises(InputError, match="named twice"):
        evaluate_similarity(["bm25", "bm25"], task)
    with pytest.raises(InputError, match="no system 'x'"):
        evaluate_similarity(["bm25"], task, baseline="x")


def test_what_was_measured_before_is_kept_and_what_changed_is_measured_again(
    models, first_is_right, monkeypatch
):
    task = read_task(first_is_right)
    names, kept = [f"few={models / 'nuggets'}@0.2", "bm25"], []
    whole = evaluate_similarity(names, task, baseline="bm25", keep=kept.append)
    assert [[row["system"] for row in found["results"]] for found in kept] == [["few"], ["few", "bm25"]]
    measured, plain = [], module._measure_system
    monkeypatch.setattr(
        module,
        "_measure_system",
        lambda system, *rest: measured.append(system.name) or plain(system, *rest),
    )
    earlier = json.loads(json.dumps(kept[0]))
    assert evaluate_similarity(names, task, baseline="bm25", earlier=earlier) == whole
    assert measured == ["bm25"]
    kept.clear()
    evaluate_similarity([f"few={models / 'nuggets'}@0.3"], task, earlier=whole, keep=kept.append)
    assert measured == ["bm25", "few"]
    assert [row["system"] for row in kept[0]["results"]] == ["few", "bm25"]
    with pytest.raises(InputError, match=r"other settings: similarity was 'maxsim' and is now 'symmetric'"):
        evaluate_similarity(names, task, "symmetric", earlier=whole)
    with pytest.raises(InputError, match="not results of 'similarity'"):
        evaluate_similarity(names, task, earlier={"results": []})


def test_queries_may_have_another_ratio(models):
    name = f"{models / 'nuggets'}@0.2"
    plain, richer = (make_system(name, one_way, ratio) for ratio in (None, 1.0))
    texts = (CORPUS[:1], CORPUS)
    assert plain.read(*texts)(0, [1]) != richer.read(*texts)(0, [1])
    assert plain.vectors == richer.vectors


def test_a_models_own_ratio_of_queries_holds_for_its_nuggets_alone(models, tmp_path):
    model = load(models / "nuggets")
    model.config.query_ratio = 0.5
    model.save_pretrained(tmp_path / "own")
    names = (f"{tmp_path / 'own'}@0.2", f"{tmp_path / 'own'}:chunk_means@0.2")
    assert [make_system(name, one_way).query_ratio for name in names] == [0.5, 0.2]
    assert make_system(names[0], one_way, 1.0).query_ratio == 1.0
    for name in names:
        named = make_system(f"{name}/0.25", one_way, 1.0)
        assert (named.ratio, named.query_ratio) == (0.2, 0.25)


def test_grades_say_what_they_mean_and_leave_out_the_rest(retrieval):
    assert read_task(retrieval, grades={1: 4, 4: 1}).grades[0] == {0: 4, 1: 1}
    assert read_task(retrieval).grades[0] == {0: 1, 1: 4}


def test_what_is_judged_but_missing_counts_as_not_found(retrieval, tmp_path):
    shutil.copytree(retrieval, tmp_path / "task")
    with (tmp_path / "task" / "qrels.tsv").open("a") as rows:
        rows.write("q0\tgone\t1\nq1\tgone\t1\n")
    task = read_task(tmp_path / "task")
    assert task.grades[0] == {0: 1, 1: 4, -1: 1}
    found = measure(task.candidates, task.grades, ["R@100"])["R@100"]
    assert found[0] == pytest.approx(2 / 3)
    assert found[2] == 1


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("x:clusters@0.1", "no method 'clusters'; choose one of all, mean"),
        ("x@ten", "the ratio 'ten' is not a number"),
        ("x@", "the ratio '' is not a number"),
        ("x@2", "ratio must lie in"),
        ("x@0.1/2", "ratio must lie in"),
        ("x@0.1/0.2/0.3", "one ratio, or two"),
        ("nowhere/at/all", "cannot load 'nowhere/at/all': no such folder"),
    ],
)
def test_an_invalid_system_is_named(name, message):
    with pytest.raises(textnuggets.TextnuggetsError, match=message):
        make_system(name, one_way)


def test_a_task_without_a_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match="no such folder"):
        read_task(tmp_path / "none")


@pytest.mark.parametrize(
    ("answer", "documents", "message"),
    [
        (None, None, r"neither task\.jsonl"),
        (0, None, r"docs\.txt is missing"),
        (3, "L0\ta\nR0\tb\n", r"task\.jsonl, line 1: source, candidates and answer"),
        (-1, "L0\ta\nR0\tb\n", r"task\.jsonl, line 1: source, candidates and answer"),
        (0, "L0\ta\nR0\n", r"docs\.txt, line 2: expected 2 columns"),
    ],
)
def test_a_broken_task_is_named_with_its_line(tmp_path, answer, documents, message):
    if answer is not None:
        task = {"source": "L0", "candidates": ["R0"], "answer": answer}
        (tmp_path / "task.jsonl").write_text(json.dumps(task) + "\n")
    if documents is not None:
        (tmp_path / "docs.txt").write_text(documents)
    with pytest.raises(InputError, match=message):
        read_task(tmp_path)


# -------------------------------------------------------------------- tasks that are made


def test_reranking_asks_for_a_section_of_the_same_article(tmp_path):
    words = [f"alpha{i} beta{i} gamma{i}" for i in range(30)]
    articles = [
        {
            "sections": [{"head": "", "paras": [f"{word} " * 12]}]
            + [{"head": "h", "paras": [f"{word} {j} " * 20]} for j in (1, 2)]
        }
        for word in words
    ]
    (tmp_path / "articles.jsonl").write_text("".join(json.dumps(article) + "\n" for article in articles))
    questions = build_reranking([str(tmp_path / "articles.jsonl")], seed=1)
    assert len(questions) == 30
    for word, question in zip(words, questions, strict=True):
        assert word in question.query
        assert word in question.answer
        assert question.answer != question.query
        assert len(question.negatives) == 19
        assert not any(word in negative for negative in question.negatives)
    write_task(tmp_path / "task", questions, {"seed": 0})
    task = read_task(tmp_path / "task")
    assert mean_reciprocal_rank(task, make_system("bm25", one_way).read(task.queries, task.documents)) > 90
    places = [
        json.loads(line)["answer"] for line in (tmp_path / "task" / "task.jsonl").read_text().splitlines()
    ]
    assert len(set(places)) > 5  # the answer stands anywhere


def test_paraphrases_lack_other_sentences_on_each_side(tmp_path):
    lines = [f"one{i} two{i} three{i}\teins{i} two{i} drei{i}" for i in range(400)]
    (tmp_path / "pairs.tsv").write_text("\n".join(lines) + "\n")
    questions = build_paraphrase([str(tmp_path / "pairs.tsv")], max_words=30)
    assert len(questions) == 40
    left = [{word for word in q.query.split() if word.startswith("two")} for q in questions]
    right = [{word for word in q.answer.split() if word.startswith("two")} for q in questions]
    shares = [len(a) / 10 for a in left + right]
    assert 0.7 < np.mean(shares) < 0.9
    assert sum(a != b for a, b in zip(left, right, strict=True)) > 20
    assert all(q.answer not in q.negatives and len(q.negatives) == 19 for q in questions)


def test_too_few_texts_make_no_task(tmp_path):
    (tmp_path / "few.tsv").write_text("a\tb\n")
    with pytest.raises(InputError, match="20 are needed"):
        build_paraphrase([str(tmp_path / "few.tsv")])
    (tmp_path / "few.tsv").write_text("a\n")
    with pytest.raises(InputError, match="line 1: expected two columns"):
        build_paraphrase([str(tmp_path / "few.tsv")])
    (tmp_path / "few.jsonl").write_text('{"text": "no sections"}\n')
    with pytest.raises(InputError, match="expected an article with 'sections'"):
        build_reranking([str(tmp_path / "few.jsonl")])


def test_the_command_writes_results_and_names_what_is_wrong(run, models, retrieval, tmp_path):
    done = run(
        "evaluate",
        "similarity",
        "bm25",
        f"{models / 'nuggets'}@0.2",
        retrieval,
        "--out",
        tmp_path / "out",
        "--grades",
        "1=4,4=1",
    )
    assert done.returncode == 0, done.stderr
    assert "nDCG@10" in done.stdout
    results = json.loads((tmp_path / "out" / "similarity.json").read_text())
    assert results["versions"]["bm25s"]
    assert results["data"][0]["sha256"]
    for arguments, message in (
        (["bm25"], "at least one system"),
        (["bm25", tmp_path / "none"], "no such folder"),
        (["bm25", retrieval, "--grades", "x"], "write old=new"),
        (["bm25", retrieval, "--similarity", "dot"], "one of maxsim, symmetric, matching"),
        (["bm25", retrieval, "--resume"], "other settings: grades was {'1': 4, '4': 1} and is now None"),
    ):
        failed = run("evaluate", "similarity", *arguments, "--out", tmp_path / "out")
        assert failed.returncode == 2
        assert message in failed.stderr
        assert "Traceback" not in failed.stderr
