"""Training on pairs of queries and documents."""

from __future__ import annotations

import json

import pytest
import torch

from tests.tiny import CORPUS, tiny_tokenizer
from tests.train.setting import losses, make_setting
from textnuggets.errors import ConfigError, InputError
from textnuggets.model.load import load_nugget_model
from textnuggets.train.objectives.contrastive import Side, first_dimensions, standardize
from textnuggets.train.query_pairs import has_queries, load_pairs
from textnuggets.train.recipe_io import read_recipe
from textnuggets.train.run import train

WORDS = sorted({word for text in CORPUS for word in text.split()})
PAIRS = [
    {"query": f"{WORDS[i]} {WORDS[i + 1]}", "positive": f"{' '.join(WORDS[i : i + 6])} {CORPUS[i % 3]}"}
    for i in range(12)
]
CHANGES = [
    "objective.name=contrastive", "objective.ratios=[0.25]", "optimizer.batch_tokens=512", "report.ratios=[0.25]",
    "model.selector=even", "model.gather=mean", "model.feedback=false", "model.residual=off", "model.dim=16",
    "objective.dims=[16, 8]", "objective.distill=0.5",
]  # fmt: skip


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "queries.jsonl"
    write(path, PAIRS)
    return path


def write(path, pairs):
    path.write_text("".join(json.dumps(pair) + "\n" for pair in pairs))


def load(*paths):
    return load_pairs([str(path) for path in paths], tiny_tokenizer(), 32)


def test_a_batch_holds_different_documents_of_one_file_and_neighbours_of_its_queries(pairs, tmp_path):
    write(tmp_path / "other.jsonl", [{"query": "x", "positive": text} for text in CORPUS[:3]])
    source = load(pairs, tmp_path / "other.jsonl")
    assert str(source) == "15 queries, 15 documents"
    batches = list(source.batches(4, steps=30, seed=0))
    assert batches == list(source.batches(4, steps=30, seed=0))
    assert batches != list(source.batches(4, steps=30, seed=1))
    assert {file for batch in batches for file, _ in batch} == {0, 1}
    for batch in batches:
        assert len({file for file, _ in batch}) == 1
        documents = [source.files[file].pairs[pair].document for file, pair in batch]
        assert len(set(documents)) == len(documents) == (4 if batch[0][0] == 0 else 3)
        first = batch[0]
        assert batch[1][1] in source.files[first[0]].neighbours([first[1]])[0]


def test_queries_of_the_same_document_never_share_a_batch(tmp_path):
    write(tmp_path / "a.jsonl", [*PAIRS[:3], {**PAIRS[0], "query": "another"}])
    source = load(tmp_path / "a.jsonl")
    for batch in source.batches(4, steps=20, seed=0):
        assert len(batch) == 3


def test_given_negatives_are_further_documents(tmp_path):
    write(tmp_path / "a.jsonl", [{**pair, "negatives": CORPUS[:2]} for pair in PAIRS])
    query, document, negatives = load(tmp_path / "a.jsonl")[0, 3]
    tokenizer = tiny_tokenizer()
    texts = [tokenizer.decode(e.input_ids, skip_special_tokens=True) for e in (query, document, *negatives)]
    expected = [PAIRS[3]["query"], PAIRS[3]["positive"], *CORPUS[:2]]
    cut = tokenizer(expected, truncation=True, max_length=32)["input_ids"]
    assert texts == [tokenizer.decode(ids, skip_special_tokens=True) for ids in cut]


def test_bad_pairs_are_refused_with_their_place(tmp_path, pairs):
    bad = tmp_path / "bad.jsonl"
    for wrong in (
        {"positive": None},
        {"positive": " "},
        {"query": 3},
        {"negatives": "text"},
        {"negatives": [1]},
    ):
        write(bad, [PAIRS[0], {**PAIRS[1], **wrong}])
        if wrong == {"negatives": "text"}:
            continue
        with pytest.raises(InputError, match="line 2: a pair needs the texts"):
            load(bad)
    write(bad, PAIRS[:1])
    with pytest.raises(InputError, match="fewer than two different documents"):
        load(bad)
    (tmp_path / "texts.txt").write_text("a text\n")
    assert has_queries([str(pairs)])
    assert not has_queries([str(tmp_path / "texts.txt")])
    with pytest.raises(InputError, match=r"texts.txt: has no field 'query'"):
        has_queries([str(pairs), str(tmp_path / "texts.txt")])


def test_training_on_pairs_starts_at_principal_components_and_lowers_the_loss(tmp_path, pairs):
    changes = [
        *CHANGES,
        f"data.train=['{pairs}']",
        f"data.dev=['{pairs}']",
        "optimizer.steps=12",
        "optimizer.lr=0.003",
    ]
    recipe = read_recipe(make_setting(tmp_path, "bert"), changes)
    best = train(recipe, tmp_path / "run")
    model = load_nugget_model(best)
    assert model.dim == 16
    assert model.encode(CORPUS[:1])[0].vectors.shape[1] == 16
    found = list(losses(tmp_path / "run").values())
    assert sum(found[-3:]) < sum(found[:3])


def test_more_dimensions_than_the_model_has_are_refused(tmp_path, pairs):
    changes = [*CHANGES, f"data.train=['{pairs}']", f"data.dev=['{pairs}']", "objective.dims=[99]"]
    with pytest.raises(ConfigError, match=r"objective.dims is \[99\], but nuggets have 16 dimensions"):
        train(read_recipe(make_setting(tmp_path, "bert"), changes), tmp_path / "run")


def test_first_dimensions_are_normalized_and_scores_standardized():
    side = Side(torch.randn(2, 3, 8), torch.zeros(2, 3), torch.ones(2, 3, dtype=torch.bool))
    assert torch.allclose(first_dimensions(side, 4).vectors.norm(dim=-1), torch.ones(2, 3))
    made = standardize(torch.tensor([[1.0, 2.0, 6.0]]))
    assert made.mean().item() == pytest.approx(0, abs=1e-6)
    assert made.square().mean().item() == pytest.approx(1, abs=1e-5)
