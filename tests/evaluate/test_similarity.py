"""Similarity: only scores help a system, and all systems are measured in the same way."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from tests.evaluate.setting import CANDIDATES, CHANCE, mean_reciprocal_rank
from textnuggets.errors import InputError
from textnuggets.evaluate import similarity as module
from textnuggets.evaluate.similarity import evaluate_similarity, interval, measure, rank, to_markdown
from textnuggets.evaluate.tasks import read_task
from textnuggets.report.figures import draw_similarity


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
    wrong = (("measures", {"RR": 3}), ("vectors", "x"), ("by_query", {}), ("measures", None), ("bytes", None))
    for key, value in wrong:
        damaged = {**whole, "results": [{**row, key: value} for row in whole["results"]]}
        with pytest.raises(InputError, match="not results of 'similarity'"):
            evaluate_similarity(names, task, earlier=damaged)


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
