"""Which tokens become nuggets (the paper's section 5.2 and its appendix on other languages)."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch

from textnuggets.analysis.highlight import highlight
from textnuggets.data.batching import Collator
from textnuggets.data.packed import CACHE
from textnuggets.errors import ConfigError
from textnuggets.evaluate.provenance import draw_documents, provenance
from textnuggets.io.progress import Progress
from textnuggets.model.modeling import NuggetModel
from textnuggets.model.selection import nugget_count

BATCH = 32
EXAMPLES = 3  # documents that are kept with their tokens' scores, to be looked at
RARE = 20  # types that occur less often are neither favoured nor avoided: too little is known
GROUPS = ("beginning", "end", "punctuation", "conjunctions", "prepositions", "rest")
# Closed classes, the common ones; what is not listed is in the rest.
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
    """The group of a vocabulary piece."""
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
    """A vocabulary piece without the sign for the space before it."""
    return token.lstrip("\u2581\u0120").removeprefix("##")


def evaluate_preferences(
    model: NuggetModel,
    sources: Sequence[str],
    ratio: float | None = None,
    documents: int = 1000,
    max_tokens: int = 128,
    language: str = "en",
    seed: int = 0,
    cache: str = CACHE,
) -> dict[str, Any]:
    """The share of every token type among the nuggets and in the text.

    Args:
        model: Any nugget model.
        sources: Corpora, as for training.
        ratio: Compression ratio; the model's own by default.
        documents: How many are drawn.
        max_tokens: Their length at most.
        language: Of the texts; of aligned pairs, the side that is read.
        seed: Decides which are drawn.
        cache: Where packed documents are kept.
    """
    ratio = model.config.ratio if ratio is None else ratio
    if model.selector.pools:
        raise ConfigError("a model with one pooled vector chooses no tokens.")
    corpus, rows = draw_documents(model, sources, max_tokens, documents, seed, [language], cache)
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
        **provenance(model, sources, seed),
        "documents": len(rows),
        "tokens": tokens,
        "nuggets": nuggets,
        "groups": groups,
        # Most types of a vocabulary are rare and never chosen; the groups count them, too.
        "types": [item for item in types if item["nuggets"] or item["in_text"] >= RARE],
        "examples": [
            [asdict(piece) for piece in highlight(model, text, ratio)]
            for text, _ in corpus.texts(rows[:EXAMPLES])
        ],
    }


def favoured(results: dict[str, Any], count: int, avoided: bool = False) -> list[dict[str, Any]]:
    """The types chosen most above, or below, how often they occur; rare ones do not count."""
    known = [item for item in results["types"] if item["in_text"] >= RARE]
    known.sort(key=lambda item: (item["preference"], item["in_text"] if not avoided else -item["in_text"]))
    return known[:count] if avoided else known[::-1][:count]


def to_markdown(results: dict[str, Any], count: int = 6) -> str:
    """Groups, the most frequent nuggets, and the most favoured and avoided tokens."""
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
