"""Vectors saved by a ratio per document."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tiny import CORPUS
from textnuggets.analysis.fidelity import LADDER, encode_and_measure, encode_to_fidelity
from textnuggets.evaluate.fidelity import (
    evaluate_fidelity,
    lowest_faithful,
    to_markdown,
    vectors_of_one_ratio,
)
from textnuggets.evaluate.sample import Sample
from textnuggets.report.figures import draw_fidelity

# Texts of these tests have characters that the tiny tokenizer does not know.
pytestmark = pytest.mark.filterwarnings("ignore::textnuggets.errors.TextnuggetsWarning")


def test_a_document_takes_the_first_step_that_is_enough_or_else_its_best():
    scores = np.array([[0.2, 0.9, 0.1], [0.8, 1.0, 0.4], [0.9, 1.0, 0.3]])
    assert lowest_faithful(scores, 0.8).tolist() == [1, 0, 1]


def test_one_ratio_is_found_between_the_steps():
    means, vectors = np.array([0.2, 0.6, 1.0]), np.array([10, 20, 40])
    assert vectors_of_one_ratio(means, vectors, 0.8) == pytest.approx(30)
    assert vectors_of_one_ratio(means, vectors, 0.1) == 10
    assert vectors_of_one_ratio(means * 0.5, vectors, 0.9) is None


def test_documents_are_measured_at_every_step_and_the_saving_reported(copier, tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(CORPUS) + "\n")
    found = evaluate_fidelity(copier, Sample([str(texts)], cache=str(tmp_path / "cache")), 0.9, max_tokens=48)
    assert found["documents"] == sum(step["chosen"] for step in found["fixed"]) > 0
    assert found["each"]["vectors"] <= found["fixed"][-1]["vectors"]
    assert "documents of up to 48 tokens" in to_markdown(found)
    assert len(draw_fidelity(found).axes) == 1


def test_the_choice_equals_that_of_encode_to_fidelity(copier):
    texts = [*CORPUS, "Cats and dogs read the letter near the bridge, until morning."]
    scores = np.array([[item.fidelity for item in encode_and_measure(copier, texts, r)] for r in LADDER])
    steps = lowest_faithful(scores, 0.95)
    assert [item.ratio for item in encode_to_fidelity(copier, texts, 0.95)] == [
        LADDER[step] for step in steps
    ]
