"""Actions of the commands of `textnuggets lm` on the adapter of a decoder-only model."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textnuggets.errors import InputError

if TYPE_CHECKING:
    from textnuggets.causal.modeling import CausalNuggetLM


class Writer:
    """Prints a text part by part, without a space before the first word."""

    def __init__(self) -> None:
        self.started = False

    def __call__(self, part: str) -> None:
        """Print the next part."""
        part = part if self.started else part.lstrip()
        self.started = self.started or bool(part)
        print(part, end="", flush=True)


def continue_text(
    lm: CausalNuggetLM, text: str, state: Path | None, max_new_tokens: int, options: dict[str, Any]
) -> None:
    """Print a continuation of a text, which may follow a saved state."""
    if state is not None and not state.is_file():
        raise InputError(f"{state}: no such file.")
    stream = lm.open() if state is None else lm.load_stream(state)
    stream.append(text)
    print(f"{stream.length:,} tokens read: {stream.size:,} in the cache", file=sys.stderr)
    write = Writer()
    if options.get("num_beams", 1) > 1:
        write(stream.generate(max_new_tokens, **options))
    else:
        stream.generate(max_new_tokens, write, **options)
    print()


def evaluate_adapter(
    lm: CausalNuggetLM,
    source: str,
    tokens: int | None,
    ratio: float | None,
    articles: int | None,
    seed: int,
    out: Path | None,
    as_json: bool,
) -> None:
    """Measure perplexity with nuggets and with what else a cache can keep; print it, and write it to a folder."""
    from textnuggets.evaluate.cached_context import (
        TOKENS,
        evaluate_cached_context,
        read_beginnings,
        to_markdown,
    )
    from textnuggets.evaluate.provenance import describe_source, software, write_results
    from textnuggets.io.disk import make_folder
    from textnuggets.io.files import replacing
    from textnuggets.io.locks import writing

    length = tokens or TOKENS
    chosen = read_beginnings(source, lm.tokenizer, length, articles)
    measured = evaluate_cached_context(lm, chosen, None if ratio is None else [ratio], seed)
    settings = {key: getattr(lm.config, key) for key in ("segment", "scorer_layer", "selector", "rank")}
    about = {
        "question": "cached_context",
        "weights": lm.weights_digest(),
        "base": {"model": Path(str(lm.config.base)).name, "weights": lm.config.base_weights},
        "settings": {**settings, "tokens": length, "dtype": str(lm.dtype)},
        "data": [describe_source(source)],
        "seed": seed,
    }
    results = {**about, **software("peft"), "results": measured}
    if out is not None:
        make_folder(out)
        with writing(out / "cached_context.json"):
            write_results(out / "cached_context.json", results)
            with replacing(out / "cached_context.md") as temporary:
                temporary.write_text(to_markdown(results), encoding="utf-8")
        print(f"{out / 'cached_context'}.json and .md", file=sys.stderr)
    print(json.dumps(results) if as_json else to_markdown(results), end="\n" if as_json else "")
