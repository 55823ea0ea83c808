"""Token types chosen as nuggets (section 5.2 of the paper and its appendix on other languages)."""

from __future__ import annotations

import unicodedata
from collections import Counter
from dataclasses import asdict
from typing import Any

import torch

from textnuggets.analysis.highlight import highlight
from textnuggets.data.batching import Collator
from textnuggets.errors import ConfigError
from textnuggets.evaluate.provenance import provenance
from textnuggets.evaluate.sample import Sample
from textnuggets.io.progress import Progress
from textnuggets.model.budget import nugget_count
from textnuggets.model.modeling import NuggetModel

BATCH = 32
EXAMPLES = 3  # documents stored with the scores of their tokens, for the report
RARE = 20  # types with fewer occurrences are ranked neither as favoured nor as avoided
GROUPS = ("beginning", "end", "punctuation", "conjunctions", "prepositions", "rest")
# Common members of closed classes; all other words are in the group "rest".
CONJUNCTIONS = {
    "en": "and or but nor so yet because although though while if unless since whereas that when than",
    "fr": "et ou mais ni car donc or que quand comme si lorsque puisque quoique",
    "de": "und oder aber denn sondern weil dass wenn ob als obwohl während",
}
PREPOSITIONS = {
    "en": "of in to for with on at by from as into about after over between through during before against "
    "under without within along across behind beyond upon near among",
    "fr": "de à en dans par pour sur avec sans sous entre vers chez depuis pendant contre du des au aux",
    "de": "von in zu mit auf für an bei nach aus um über unter vor zwischen durch gegen ohne im am zum zur vom",
}


def group_of(token: str, language: str, beginning: str | None, end: str | None) -> str:
    """Return the group of a vocabulary piece."""
    if token == beginning:
        return "beginning"
    if token == end:
        return "end"
    bare = bare_piece(token)
    if bare and all(unicodedata.category(character)[0] in "PS" for character in bare):
        return "punctuation"
    if bare.lower() in CONJUNCTIONS.get(language, "").split():
        return "conjunctions"
    if bare.lower() in PREPOSITIONS.get(language, "").split():
        return "prepositions"
    return "rest"


def bare_piece(token: str) -> str:
    """Return a vocabulary piece without its word-boundary marker."""
    return token.lstrip("\u2581\u0120").removeprefix("##")


def evaluate_preferences(
    model: NuggetModel,
    sample: Sample,
    ratio: float | None = None,
    max_tokens: int = 128,
) -> dict[str, Any]:
    """Measure the share of every token type among the nuggets and in the text.

    Args:
        model: Any nugget model that selects tokens.
        sample: Documents to measure, in one language; for aligned pairs, the side to read.
        ratio: Compression ratio; default: the model's own.
        max_tokens: Maximum number of tokens per document.
    """
    ratio = model.config.ratio if ratio is None else ratio
    if len(sample.languages) != 1:
        raise ConfigError(f"preferences are measured in one language, got {list(sample.languages)}.")
    language = sample.languages[0]
    if model.selector.pools:
        raise ConfigError("the selector 'mean' pools all tokens into one vector and chooses no tokens.")
    corpus, rows = sample.draw(model, max_tokens)
    collate = Collator(model.pad_id)
    in_text: Counter[int] = Counter()
    chosen: Counter[int] = Counter()
    with model.evaluating(), torch.no_grad(), Progress("preferences", total=len(rows)) as progress:
        for start in range(0, len(rows), BATCH):
            batch = collate([corpus[row] for row in rows[start : start + BATCH]])
            batch = {name: value.to(model.device) for name, value in batch.items()}
            ids, mask = batch["input_ids"], batch["attention_mask"].bool()
            selection = model.generate_nuggets(
                ids, mask, nugget_count(mask.sum(-1), ratio), batch["sentence_ends"]
            ).selection
            in_text.update(ids[mask].tolist())
            chosen.update(ids.gather(1, selection.positions)[selection.kept].tolist())
            progress.add(len(ids))
    tokenizer = model.tokenizer
    tokens, nuggets = sum(in_text.values()), sum(chosen.values())
    ends = (tokenizer.bos_token or tokenizer.cls_token, tokenizer.eos_token or tokenizer.sep_token)
    types = [
        {
            "token": token,
            "group": group_of(token, language, *ends),
            "in_text": count,
            "nuggets": chosen[index],
            "share_in_text": count / tokens,
            "share_of_nuggets": chosen[index] / nuggets,
            "preference": (chosen[index] / nuggets) / (count / tokens),
        }
        for index, count in in_text.items()
        for token in [tokenizer.convert_ids_to_tokens(index)]
    ]
    types.sort(key=lambda item: (-item["nuggets"], -item["in_text"], item["token"]))
    groups = []
    for name in GROUPS:
        members = [item for item in types if item["group"] == name]
        share, of_nuggets = (sum(m[key] for m in members) for key in ("share_in_text", "share_of_nuggets"))
        groups.append(
            {
                "group": name,
                "share_in_text": share,
                "share_of_nuggets": of_nuggets,
                "preference": of_nuggets / share if share else None,
            }
        )
    return {
        "question": "preferences",
        "settings": {"ratio": ratio, "max_tokens": max_tokens, "language": language, "rare": RARE},
        **provenance(model, sample),
        "documents": len(rows),
        "tokens": tokens,
        "nuggets": nuggets,
        "groups": groups,
        # Rare types that are never chosen are left out here, but counted in the groups.
        "types": [item for item in types if item["nuggets"] or item["in_text"] >= RARE],
        "examples": [
            [asdict(piece) for piece in highlight(model, text, ratio)]
            for text, _ in corpus.texts(rows[:EXAMPLES])
        ],
    }


def favoured(results: dict[str, Any], count: int, avoided: bool = False) -> list[dict[str, Any]]:
    """Return the types with the highest preference, or the lowest; rare types are left out."""
    known = [item for item in results["types"] if item["in_text"] >= RARE]
    known.sort(key=lambda item: (item["preference"], item["in_text"] if not avoided else -item["in_text"]))
    return known[:count] if avoided else known[::-1][:count]


def to_markdown(results: dict[str, Any], count: int = 6) -> str:
    """Format groups, the most frequent nuggets, and the most favoured and avoided tokens as Markdown tables."""
    lines = ["| group | share in text | share of nuggets | preference |", "|---|---|---|---|"]
    for item in results["groups"]:
        preference = "" if item["preference"] is None else f"{item['preference']:.2f}x"
        lines.append(
            f"| {item['group']} | {item['share_in_text']:.1%} | {item['share_of_nuggets']:.1%} | {preference} |"
        )
    tables = {
        "the most frequent nuggets": results["types"][:count],
        "the most favoured tokens": favoured(results, count),
        "the most avoided tokens": favoured(results, count, avoided=True),
    }
    for title, items in tables.items():
        lines += ["", f"| {title} | share in text | share of nuggets | preference |", "|---|---|---|---|"]
        lines += [
            f"| `{item['token']}` | {item['share_in_text']:.2%} | {item['share_of_nuggets']:.2%} | "
            f"{item['preference']:.2f}x |"
            for item in items
        ]
    settings, data = results["settings"], ", ".join(item["source"] for item in results["data"])
    lines += [
        "",
        f"{data}: {results['documents']:,} documents of up to {settings['max_tokens']} tokens, "
        f"{results['nuggets']:,} nuggets of {results['tokens']:,} tokens, r = {settings['ratio']:g}. "
        f"Types that occur fewer than {RARE} times are left out of the last two tables.",
    ]
    return "\n".join(lines) + "\n"
