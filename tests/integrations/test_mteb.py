"""MTEB with the real package: a retrieval task from a folder, evaluated through MultiVectorWrapper."""

from __future__ import annotations

import json

import mteb
import pytest
from mteb.models import MultiVectorWrapper

from tests.tiny import CORPUS, tiny_model
from textnuggets.errors import InputError
from textnuggets.evaluate.similarity import evaluate_similarity
from textnuggets.evaluate.tasks import read_task
from textnuggets.integrations.mteb import model_meta, retrieval_task


@pytest.fixture
def folder(tmp_path):
    """A task with grades, in the layout of BEIR: a query may have the id of a document, which is not a candidate."""
    made = tmp_path / "letters"
    (made / "qrels").mkdir(parents=True)
    texts = [*CORPUS, " ".join(CORPUS * 3)]
    with (made / "corpus.jsonl").open("w") as file:
        file.writelines(json.dumps({"_id": f"d{i}", "text": text}) + "\n" for i, text in enumerate(texts))
    queries = {"d0": CORPUS[0], "q1": "the rain and the river", "q2": "the old house near the water"}
    with (made / "queries.jsonl").open("w") as file:
        file.writelines(json.dumps({"_id": name, "text": text}) + "\n" for name, text in queries.items())
    lines = ["d0\td5\t2", "d0\td1\t1", "q1\td1\t2", "q1\td5\t1", "q2\td3\t1"]
    (made / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "\n".join(lines) + "\n")
    return made


def test_mteb_measures_what_we_measure(folder, tmp_path, monkeypatch):
    # MTEB does not round vectors, as an index would.
    monkeypatch.setattr("textnuggets.evaluate.systems.default_dtype", lambda _: "float32")
    tiny_model("bert", ratio=0.25, query_ratio=0.5).save_pretrained(tmp_path / "model")
    meta = model_meta(tmp_path / "model", device="cpu")
    result = mteb.evaluate(
        meta, retrieval_task(folder), cache=None, show_progress_bar=False, co2_tracker=False
    )
    found = result.task_results[0].scores["test"][0]
    ours = evaluate_similarity([f"tiny={tmp_path / 'model'}"], read_task(folder), "maxsim", 0.5)
    expected = ours["results"][0]["measures"]
    assert found["ndcg_at_10"] == pytest.approx(expected["nDCG@10"]["mean"] / 100, abs=1e-4)
    assert found["recall_at_100"] == pytest.approx(expected["R@100"]["mean"] / 100, abs=1e-4)
    assert 0 < found["ndcg_at_10"] < 1
    assert result.model_name == "local/model"


def test_the_metadata_describes_the_model_and_loads_it():
    model = tiny_model("bert", ratio=0.25)
    meta = model_meta(model, device="cpu")
    assert meta.n_parameters == sum(parameter.numel() for parameter in model.parameters())
    assert meta.embed_dim == model.dim
    assert meta.model_type == ["late-interaction"]
    loaded = meta.load_model(device="cpu")
    assert isinstance(loaded, MultiVectorWrapper)
    assert loaded.model[0].model is model


def test_a_reranking_task_is_refused(tmp_path):
    (tmp_path / "docs.txt").write_text("a\tone\nb\ttwo\n")
    (tmp_path / "task.jsonl").write_text('{"source": "a", "candidates": ["b"], "answer": 0}\n')
    with pytest.raises(InputError, match="a reranking task"):
        retrieval_task(tmp_path)
