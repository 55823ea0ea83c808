"""Verdicts on the paper's claims (yes, partly, no or unclear) from results files, with the figures behind them.

A value is above or below a bound only if its 95% interval is; if the bound lies inside, the claim is unclear.

- A share of nuggets has Wilson's interval.
- BLEU and its rise have bootstrap intervals over documents, the rise paired by document.
- A probability gain has a standard error over documents.

Results of earlier versions lack some intervals; there, the value alone decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from textnuggets.evaluate.preferences import bare_piece
from textnuggets.evaluate.probing import before_and_after, near_tokens
from textnuggets.evaluate.stats import share_interval

SATURATED = 1.0  # largest rise of BLEU from r = 0.1 to the largest ratio that counts as none
LITTLE = 1.0  # change of BLEU that counts as little
WORD_FOR_WORD, NEARLY = 99.0, 95.0  # BLEU
FAR_MORE = 2.0  # how many times as often as in the text is "far more often"
UNCLEAR = "unclear"  # the interval includes the bound that decides
ALIKE = 1.1  # gains before and after a nugget within this factor count as equal


class Verdict(NamedTuple):
    """A claim of the paper and the verdict on it."""

    claim: str
    paper: str
    verdict: str
    figure: str


def _verdict(yes: bool, partly: bool = False) -> str:
    return "yes" if yes else "partly" if partly else "no"


def check_preferences(results: dict[str, Any]) -> list[Verdict]:
    """Check section 5.2: delimiters are chosen far more often than they occur, BOS never, EOS often."""
    groups = {item["group"]: item for item in results["groups"]}
    nuggets = results["nuggets"]
    verdicts = []
    for group, claim, paper in (
        ("punctuation", "punctuation is chosen far more often than it occurs", "the most frequent nuggets"),
        ("conjunctions", "so are conjunctions", "among the most frequent nuggets"),
        ("prepositions", "so are prepositions", "among the most frequent nuggets"),
    ):
        in_text, share = groups[group]["share_in_text"], groups[group]["share_of_nuggets"]
        if in_text:
            low, high = (bound / in_text for bound in share_interval(round(share * nuggets), nuggets))
            preference = share / in_text
            verdict = _verdict(low > 1 and preference >= FAR_MORE, low > 1)
            shares = f"{share:.1%} of nuggets, {in_text:.1%} of the text"
            figure = f"{preference:.2f}x ({low:.2f} to {high:.2f}): {shares}"
            verdicts.append(Verdict(claim, paper, verdict, figure))
    the = [item for item in results["types"] if bare_piece(item["token"]) == "the"]
    if the and results["settings"]["language"] == "en":
        in_text, share = (sum(item[key] for item in the) for key in ("share_in_text", "share_of_nuggets"))
        low, high = share_interval(round(share * nuggets), nuggets)
        verdict = _verdict(high < in_text and share < in_text / 2, high < in_text)
        figure = f"{in_text:.1%} of the text, {share:.2%} ({low:.2%} to {high:.2%}) of nuggets"
        claim = "frequent tokens are not preferred: 'the' is avoided"
        verdicts.append(Verdict(claim, "5.2% of the text, 0.7% of nuggets", verdict, figure))
    in_text, share = groups["beginning"]["share_in_text"], groups["beginning"]["share_of_nuggets"]
    verdict, figure = "untested", "the backbone's tokenizer has no such token"
    if in_text:
        low, high = share_interval(round(share * nuggets), nuggets)
        verdict = _verdict(share == 0)
        figure = f"{share:.2%} ({low:.2%} to {high:.2%}) of nuggets, {in_text:.2%} of the text"
    verdicts.append(Verdict("the token that begins a text is never chosen", "never", verdict, figure))
    in_text, share = groups["end"]["share_in_text"], groups["end"]["share_of_nuggets"]
    if in_text:
        # Every document has one, so its count in the text is the number of documents.
        documents, chosen = round(in_text * results["tokens"]), round(share * nuggets)
        rate = chosen / documents
        low, high = share_interval(chosen, documents)
        by_chance = nuggets / results["tokens"]
        figure = f"chosen in {rate:.1%} ({low:.1%} to {high:.1%}) of documents, {by_chance:.1%} by chance"
        claim = "the token that ends a text is preferred"
        verdicts.append(Verdict(claim, "preferred", _verdict(low > 0.5, low > by_chance), figure))
    return verdicts


def check_probing(results: dict[str, Any]) -> list[Verdict]:
    """Check section 5.3: a nugget helps the text before it most."""
    verdicts, reach = [], near_tokens(results["settings"]["ratio"])
    for item in results["results"]:
        sides = before_and_after(item, reach)
        # If the gain after a nugget is negative, the one before it must still be positive.
        twice, more = (min(sides.excess(0)[0], sides.excess(factor)[0]) > 0 for factor in (2, ALIKE))
        unclear = not more and min(sides.excess(0)[1], sides.excess(ALIKE)[1]) > 0
        verdicts.append(
            Verdict(
                f"a nugget helps most the text before it ({item['max_tokens']} tokens)",
                "the gain is to the left of the nugget",
                UNCLEAR if unclear else _verdict(twice, more),
                f"mean gain over {reach} tokens: {sides}",
            )
        )
    return verdicts


def check_reconstruction(results: dict[str, Any]) -> list[Verdict]:
    """Check section 5.1: BLEU is saturated from r = 0.1 on, at 99; and section 3.2: ablating s changes little."""
    lengths = {item["max_tokens"] for item in results["results"]}
    length = 128 if 128 in lengths else max(lengths)  # the paper's length, if it was measured
    rows = {item["ratio"]: item for item in results["results"] if item["max_tokens"] == length}
    return [*_check_curve(rows, results["settings"]["languages"]), *_check_ablation(rows)]


def _check_curve(rows: dict[float, dict[str, Any]], languages: Sequence[str]) -> list[Verdict]:
    """Check BLEU at r = 0.1, and its rise from there to the largest ratio."""
    if 0.1 not in rows:
        return []
    verdicts, largest, row = [], max(rows), rows[0.1]
    documents = f"{row['documents']} documents"
    if largest > 0.1:
        rise, interval = rows[largest]["bleu"] - row["bleu"], row.get("rise_interval")
        low, high = interval or (rise, rise)
        shown = [ratio for ratio in (0.05, 0.1, 0.25, largest) if ratio in rows]
        curve = ", ".join(f"{_bleu(rows[ratio])} at {ratio:g}" for ratio in dict.fromkeys(shown))
        verdicts.append(
            Verdict(
                "BLEU is saturated from r = 0.1",
                "the curve is flat from there",
                UNCLEAR if low <= SATURATED < high else _verdict(high <= SATURATED),
                f"{_value(rise, interval, '+.1f')} from 0.1 to {largest:g}: {curve}; {documents}",
            )
        )
    if len(languages) == 1:  # a translation differs from its reference in any case
        low, high = row.get("bleu_interval") or (row["bleu"], row["bleu"])
        verdicts.append(
            Verdict(
                "nearly word for word at r = 0.1",
                "BLEU above 99",
                UNCLEAR if low < NEARLY <= high else _verdict(low >= WORD_FOR_WORD, low >= NEARLY),
                f"BLEU {_bleu(row)}; {documents}",
            )
        )
    return verdicts


def _check_ablation(rows: dict[float, dict[str, Any]]) -> list[Verdict]:
    """Check that BLEU hardly changes if the scores are not added to cross-attention at inference."""
    verdicts = []
    for ratio, row in rows.items():
        if (off := row.get("without_scores")) is None:  # also in results of earlier versions
            continue
        change = off["bleu"] - row["bleu"]
        low, high = off["change_interval"] or (change, change)
        is_little, is_more = low >= -LITTLE and high <= LITTLE, high < -LITTLE or low > LITTLE
        losses = "" if off["loss"] is None else f"; loss {off['loss']:.2f} instead of {row['loss']:.2f}"
        figure = f"BLEU {_value(change, off['change_interval'], '+.1f')} at r = {ratio:g}{losses}"
        verdict = _verdict(is_little) if is_little or is_more else UNCLEAR
        claim = "without scores in cross-attention, at inference alone, little changes"
        verdicts.append(Verdict(claim, "a slight change", verdict, f"{figure}; {row['documents']} documents"))
    return verdicts


def _bleu(row: dict[str, Any]) -> str:
    return _value(row["bleu"], row.get("bleu_interval"))


def _value(value: float, interval: Sequence[float] | None, style: str = ".1f") -> str:
    """Format a value with its interval, if the results have one."""
    if interval is None:
        return format(value, style)
    return f"{value:{style}} ({interval[0]:{style}} to {interval[1]:{style}})"


CHECKS = {
    "reconstruction": check_reconstruction,
    "preferences": check_preferences,
    "probing": check_probing,
}


def check_claims(results: Iterable[dict[str, Any]]) -> list[Verdict]:
    """Return the verdicts on all claims that some results can answer."""
    return [
        verdict
        for item in results
        if item["question"] in CHECKS  # the paper makes no checkable claim about the other questions
        for verdict in CHECKS[item["question"]](item)
    ]
