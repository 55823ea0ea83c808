"""Measures that several tests of similarity share."""

from __future__ import annotations

from textnuggets.evaluate.similarity import measure, rank

CANDIDATES = 20
CHANCE = 100 * sum(1 / place for place in range(1, CANDIDATES + 1)) / CANDIDATES


def mean_reciprocal_rank(task, score):
    found = [
        rank(score(query, candidates), candidates, grades)
        for query, (candidates, grades) in enumerate(zip(task.candidates, task.grades, strict=True))
    ]
    return 100 * measure(found, task.grades, ["RR"])["RR"].mean()
