"""The output of make demo."""

from __future__ import annotations

from examples import demo


def test_the_demo_ranks_the_flooded_bridge_above_everything_else(capsys):
    demo.main()
    lines = capsys.readouterr().out.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("2. search"))
    ranked = [line.strip() for line in lines[start + 1 : start + 5]]
    scores = [float(line.split()[0]) for line in ranked]
    assert scores == sorted(scores, reverse=True)
    assert "bridge" in ranked[0]
    assert "bridge" in ranked[1]
    assert scores[1] > scores[2] + 0.1
    assert any(line.strip().startswith("same") for line in lines)
