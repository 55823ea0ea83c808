"""What the paper claims of nuggets, held against results files: yes, partly or no, with the figure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from textnuggets.evaluate.preferences import bare_piece
from textnuggets.evaluate.probing import before_and_after, reach_of


class Verdict(NamedTuple):
    """One claim and what came of it."""

    claim: str
    paper: str
    verdict: str
    figure: str


def _verdict(yes: bool, partly: bool) -> str:
    return "yes" if yes else "partly" if partly else "no"


def check_preferences(results: dict[str, Any]) -> list[Verdict]:
    """Section 5.2: delimiters far more than they occur, BOS never, EOS liked."""
    groups = {item["group"]: item for item in results["groups"]}
    found = []
    for group, claim, paper in (
        ("punctuation", "punctuation is chosen far more often than it occurs", "the most frequent nuggets"),
        ("conjunctions", "so are conjunctions", "among the most frequent nuggets"),
        ("prepositions", "so are prepositions", "among the most frequent nuggets"),
    ):
        preference = groups[group]["preference"]
        if preference is not None:
            shares = f"{groups[group]['share_of_nuggets']:.1%} of nuggets, {groups[group]['share_in_text']:.1%} of the text"
            found.append(
                Verdict(
                    claim, paper, _verdict(preference >= 2, preference > 1), f"{preference:.1f}x: {shares}"
                )
            )
    the = [item for item in results["types"] if bare_piece(item["token"]) == "the"]
    if the and results["settings"]["language"] == "en":
        in_text, of_nuggets = (
            sum(item[key] for item in the) for key in ("share_in_text", "share_of_nuggets")
        )
        found.append(
            Verdict("frequent is not favoured: 'the' is avoided", "5.2% of the text, 0.7% of nuggets",
                    _verdict(of_nuggets < in_text / 2, of_nuggets < in_text),
                    f"{in_text:.1%} of the text, {of_nuggets:.1%} of nuggets")
        )  # fmt: skip
    beginning = groups["beginning"]
    share = beginning["share_of_nuggets"]
    if beginning["share_in_text"]:
        verdict = _verdict(share == 0, share < beginning["share_in_text"])
        figure = f"{share:.2%} of nuggets, {beginning['share_in_text']:.2%} of the text"
    else:
        verdict, figure = "untested", "the backbone's tokenizer has no such token"
    found.append(Verdict("the token that begins a text is never chosen", "never", verdict, figure))
    end = groups["end"]
    if end["share_in_text"]:
        # Chosen in every document, it would make up as many nuggets as there are documents.
        rate = end["share_of_nuggets"] * results["nuggets"] / (end["share_in_text"] * results["tokens"])
        found.append(
            Verdict("the token that ends a text is liked", "preferred", _verdict(rate > 0.5, rate > 0.1),
                    f"chosen in {rate:.1%} of documents")
        )  # fmt: skip
    return found


def check_probing(results: dict[str, Any]) -> list[Verdict]:
    """Section 5.3: a nugget helps most the text before it."""
    verdicts, reach = [], reach_of(results)
    for found in results["results"]:
        before, after = before_and_after(found, reach)
        verdicts.append(
            Verdict(
                f"a nugget helps most the text before it ({found['max_tokens']} tokens)",
                "the gain is to the left of the nugget",
                _verdict(before > 2 * max(after, 0), before > max(after, 0)),
                f"mean gain {before:.4f} over the {reach} tokens before it, {after:.4f} over the {reach} after it",
            )
        )
    return verdicts


def check_reconstruction(results: dict[str, Any]) -> list[Verdict]:
    """Section 5.1: the curve of BLEU against the ratio flattens; 99 from r = 0.1."""
    lengths = {item["max_tokens"] for item in results["results"]}
    length = 128 if 128 in lengths else max(lengths)  # the paper's, if it was measured
    bleu = {item["ratio"]: item["bleu"] for item in results["results"] if item["max_tokens"] == length}
    if not {0.05, 0.1, 0.25} <= bleu.keys():
        return []
    first, second = bleu[0.1] - bleu[0.05], bleu[0.25] - bleu[0.1]
    # Per step of ratio: from 0.05 to 0.1 is one, from 0.1 to 0.25 three.
    flattens = second / 3 < first
    verdicts = [
        Verdict(
            "BLEU flattens as the ratio grows",
            "saturated from r = 0.1",
            _verdict(second < 2, flattens),
            f"{bleu[0.05]:.1f} at 0.05, {bleu[0.1]:.1f} at 0.1, {bleu[0.25]:.1f} at 0.25",
        )
    ]
    if len(results["settings"]["languages"]) == 1:  # a translation cannot be word for word
        verdicts.append(
            Verdict(
                "nearly word for word at r = 0.1",
                "BLEU above 99",
                _verdict(bleu[0.1] >= 95, bleu[0.1] >= 75),
                f"BLEU {bleu[0.1]:.1f}",
            )
        )
    return verdicts


CHECKS = {
    "reconstruction": check_reconstruction,
    "preferences": check_preferences,
    "probing": check_probing,
}


def check_claims(results: Iterable[dict[str, Any]]) -> list[Verdict]:
    """Every claim that some results can speak of."""
    return [
        verdict
        for item in results
        if item["question"] in CHECKS  # the paper asks nothing of some
        for verdict in CHECKS[item["question"]](item)
    ]
