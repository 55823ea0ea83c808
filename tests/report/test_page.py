"""Verdicts on the paper's claims, and the page that shows them."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from textnuggets.analysis.highlight import Piece
from textnuggets.errors import InputError
from textnuggets.report.claims import check_claims
from textnuggets.report.page import make_report, table_to_html

MODEL = {"backbone": "marian", "parameters": 63_500_000, "scorer_layer": 1, "feedback": False}
MODEL |= {"selector": "learned", "residual": "add"}
ABOUT = {"model": MODEL, "data": [{"source": "dev.txt"}], "seed": 0, "versions": {"torch": "2"}}


def test_results_of_another_shape_are_named(tmp_path):
    """Every value is replaced by one of another type in turn; the report is made, or the file is named."""
    refused = []
    curve = reconstruction(a=90.0, b=96.0, c=96.5)
    for results, values in ((preferences(), (None, "x", [], {}, -1, float("nan"))), (curve, (None, "x"))):
        for keys in list(paths_of(results)):
            for wrong in values:
                changed = replace(results, keys, wrong)
                (tmp_path / "results.json").write_text(json.dumps(changed))
                try:
                    make_report(tmp_path)
                except InputError as error:
                    refused.append(str(error))
    assert len(refused) > 100
    assert all("results.json: not results of" in line or "no results found" in line for line in refused)


def paths_of(value, path=()):
    """Yield the keys that lead to every value within a value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from paths_of(inner, (*path, key))


def replace(value, path, new):
    """Return a copy of a value with one part replaced."""
    changed = json.loads(json.dumps(value))
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = new
    return changed


def group(name, in_text, of_nuggets):
    share = of_nuggets / in_text if in_text else None
    return {"group": name, "share_in_text": in_text, "share_of_nuggets": of_nuggets, "preference": share}


def preferences(punctuation=0.6, beginning=0.0):
    groups = [
        group("beginning", 0.01, beginning),
        group("end", 0.01, 0.1),
        group("punctuation", 0.1, punctuation),
        group("conjunctions", 0.05, 0.06),
        group("prepositions", 0.1, 0.05),
        group("rest", 0.73, 0.19),
    ]
    return {
        "question": "preferences",
        "settings": {"ratio": 0.1, "max_tokens": 128, "language": "en"},
        **ABOUT,
        "documents": 10,
        "tokens": 1000,
        "nuggets": 100,
        "groups": groups,
        "types": [
            {
                "token": "\u2581the",
                "in_text": 50,
                "share_in_text": 0.05,
                "share_of_nuggets": 0.01,
                "preference": 0.2,
            }
        ],
        "examples": [[asdict(Piece("A <b>")), asdict(Piece(",", 1.5, 1.0, is_nugget=True))]],
    }


def reconstruction(**bleu):
    rows = [
        {"ratio": ratio, "max_tokens": 128, "bleu": value, "exact": 0.1, "token_accuracy": 0.9}
        | {"documents": 10, "tokens": 100, "vectors": 10}
        for ratio, value in zip((0.05, 0.1, 0.25), bleu.values(), strict=True)
    ]
    return {
        "question": "reconstruction",
        "settings": {"beams": 5, "languages": ["en"]},
        **ABOUT,
        "results": rows,
    }


def probing(before, after):
    offsets = list(range(-64, 65))
    gain = [before if offset <= 0 else after for offset in offsets]
    orders = [{"nugget": 1, "documents": 1, "gain": [0.1, None], "positions": [1, 0]}]
    return {
        "question": "probing",
        "settings": {"ratio": 0.1, "baseline": "zeros"},
        **ABOUT,
        "results": [
            {"max_tokens": 128, "documents": 10, "nuggets": 100, "by_order": orders}
            | {"around": {"offsets": offsets, "gain": gain}}
        ],
    }


def perplexity():
    value = {"value": 30.0, "low": 29.0, "high": 31.0}
    shared = {"ratio": 0.1, "memory": "nuggets", "articles": 2, "words": 5, "tokens": 9}
    shared |= {"segment": 128, "stride": 32, "word_perplexity": value, "token_perplexity": value}
    rows = [
        {"history": 0} | shared,
        {"history": 8, "change": {"value": 0.9, "low": 0.8, "high": 1.0}} | shared,
    ]
    return {"question": "perplexity", "weights": "ab", "results": rows} | {
        key: value for key, value in ABOUT.items() if key != "model"
    }


def verdicts(*results):
    return [verdict.verdict for verdict in check_claims(results)]


def test_claims_are_judged_by_their_figures():
    many = {"nuggets": 10_000, "tokens": 100_000}
    assert verdicts(preferences() | many) == ["yes", "partly", "no", "yes", "yes", "yes"]
    chosen = verdicts(preferences(punctuation=0.05, beginning=0.005) | many)
    assert chosen == ["no", "partly", "no", "yes", "no", "yes"]
    # With 100 nuggets, neither 6% of conjunctions nor 1% of 'the' differs from 5% by more than chance.
    assert verdicts(preferences()) == ["yes", "no", "no", "no", "yes", "yes"]
    without = preferences()
    without["groups"][0] = group("beginning", 0, 0)
    assert verdicts(without)[4] == "untested"
    assert verdicts(reconstruction(a=90.0, b=99.0, c=99.5)) == ["yes", "yes"]
    assert verdicts(reconstruction(a=90.0, b=97.0, c=98.1)) == ["no", "partly"]
    assert verdicts(reconstruction(a=30.0, b=56.6, c=89.7)) == ["no", "no"]
    translation = reconstruction(a=30.0, b=32.0, c=32.5)
    translation["settings"]["languages"] = ["en", "fr"]
    assert verdicts(translation) == ["yes"]
    assert verdicts(probing(0.2, 0.05)) == ["yes"]
    assert verdicts(probing(0.06, 0.05)) == ["partly"]
    assert verdicts(probing(0.052, 0.05)) == ["no"]
    assert verdicts(probing(0.01, 0.05)) == ["no"]
    assert verdicts(probing(-0.01, -0.02)) == ["no"]  # it helps neither


@pytest.mark.parametrize(
    ("bleu", "bleu_interval", "rise_interval", "expected"),
    [
        (99.5, [99.1, 99.8], [-0.2, 0.4], ["yes", "yes"]),
        (99.5, [98.0, 99.8], [-0.2, 0.4], ["yes", "partly"]),
        (95.2, [94.0, 96.0], [0.6, 1.4], ["unclear", "unclear"]),
        (94.0, [93.0, 94.9], [1.1, 2.0], ["no", "no"]),
    ],
)
def test_a_claim_about_bleu_is_unclear_if_its_bound_lies_within_the_interval(
    bleu, bleu_interval, rise_interval, expected
):
    results = reconstruction(a=30.0, b=bleu, c=bleu + 0.1)
    results["results"][1] |= {"bleu_interval": bleu_interval, "rise_interval": rise_interval}
    assert verdicts(results) == expected


@pytest.mark.parametrize(
    ("bleu", "interval", "expected"),
    [
        (89.8, [-0.5, 0.1], "yes"),
        (90.2, None, "yes"),
        (85.0, [-6.0, -4.0], "no"),
        (85.0, None, "no"),
        (93.0, [1.5, 4.0], "no"),
        (89.0, [-2.0, 0.1], "unclear"),
    ],
)
def test_ablating_the_scores_at_inference_is_judged_by_the_change_of_bleu(bleu, interval, expected):
    results = reconstruction(a=30.0, b=90.0, c=90.1)
    results["results"][1] |= {
        "loss": 0.94,
        "without_scores": {"bleu": bleu, "loss": 1.19, "change_interval": interval},
    }
    verdict = check_claims([results])[-1]
    assert verdict.verdict == expected
    assert verdict.claim.startswith("without scores in cross-attention")
    assert "at r = 0.1; loss 1.19 instead of 0.94; 10 documents" in verdict.figure


def test_a_model_of_one_ratio_is_judged_there():
    results = reconstruction(a=30.0, b=99.5, c=99.9)
    results["results"] = results["results"][1:2]
    (verdict,) = check_claims([results])
    assert (verdict.claim, verdict.verdict) == ("nearly word for word at r = 0.1", "yes")


@pytest.mark.parametrize(
    ("before", "after", "error", "expected"),
    [
        (0.2, 0.05, 0.01, "yes"),
        (0.2, 0.09, 0.02, "partly"),  # more, but not surely twice as much
        (0.06, 0.05, 0.01, "unclear"),
        (0.01, 0.05, 0.01, "no"),
        (0.01, -0.05, 0.001, "yes"),
        (0.01, -0.05, 0.01, "unclear"),
        (-0.05, -0.1, 0.01, "no"),
    ],
)
def test_the_sides_of_a_nugget_differ_only_beyond_their_errors(before, after, error, expected):
    results = probing(before, after)
    results["results"][0]["sides"] = {"before": before, "after": after, "covariance": 0.0} | {
        "before_error": error,
        "after_error": error,
    }
    (verdict,) = check_claims([results])
    assert verdict.verdict == expected
    assert f"{before:.4f} ± {error:.4f} before a nugget" in verdict.figure


def test_the_end_token_must_be_chosen_more_often_than_by_chance():
    results = preferences()
    results["groups"][1] = group("end", 0.01, 0.011)  # 11 of 100 documents, at a ratio of 0.1
    assert verdicts(results | {"tokens": 10_000, "nuggets": 1000})[-1] == "no"
    results["groups"][1] = group("end", 0.01, 0.03)
    assert verdicts(results | {"tokens": 10_000, "nuggets": 1000})[-1] == "partly"


def test_claims_show_the_interval_of_bleu_if_the_results_have_one():
    results = reconstruction(a=30.0, b=50.0, c=80.0)
    results["results"][1] |= {"bleu_interval": [45.0, 56.0], "rise_interval": [25.0, 34.0]}
    saturated, word_for_word = check_claims([results])
    assert saturated.figure == (
        "+30.0 (+25.0 to +34.0) from 0.1 to 0.25: 30.0 at 0.05, 50.0 (45.0 to 56.0) at 0.1, 80.0 at 0.25; 10 documents"
    )
    assert word_for_word.figure == "BLEU 50.0 (45.0 to 56.0); 10 documents"


def test_the_page_holds_every_result_and_nothing_from_elsewhere(tmp_path):
    for name, results in (
        ("a", preferences()),
        ("b", reconstruction(a=1.0, b=2.0, c=3.0)),
        ("b", probing(0.2, 0.1)),
        ("c", perplexity()),
    ):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / f"{results['question']}.json").write_text(json.dumps(results))
    (tmp_path / "a" / "preferences.png").write_bytes(b"\x89PNG")
    (tmp_path / "other.json").write_text("[]")
    page = make_report(tmp_path)
    for words in (
        "section 5.1",
        "section 5.2",
        "section 5.3",
        "data:image/png;base64,",
        "<strong>yes</strong>",
        "dev.txt",
        "A &lt;b&gt;<mark",
        "5.0% of the text, 1.00% (0.18% to 5.45%) of nuggets",
        "602 M parameters",  # the paper's, and ours below
        "marian, 63.5 M parameters; scorer at layer 1, no feedback",
        'alt="BLEU against the ratio"',
        "28.10",  # published
        "x 0.9000 (0.8000 to 1.0000)",
    ):
        assert words in page
    assert "http" not in page


def test_markdown_tables_become_html_with_their_text_escaped():
    made = table_to_html("| a | b |\n|---|---|\n| `<s>` | **yes** |\n\nA & B.\n")
    assert "<th>a</th><th>b</th>" in made
    assert "<td><code>&lt;s&gt;</code></td><td><strong>yes</strong></td>" in made
    assert "<p>A &amp; B.</p>" in made


def test_a_folder_without_results_is_an_error(run, tmp_path):
    with pytest.raises(InputError, match="no results found"):
        make_report(tmp_path)
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(InputError, match=r"bad\.json: not JSON"):
        make_report(tmp_path)
    failed = run("report", tmp_path / "none")
    assert failed.returncode == 2
    assert "no such folder" in failed.stderr
