"""textnuggets lm: evaluate and run language models with compressed history."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from textnuggets.cli.adapters import Writer, continue_text, evaluate_adapter
from textnuggets.cli.options import (
    LARGEST,
    LARGEST_SEED,
    MOST_BEAMS,
    between,
    check_folder,
    check_share,
    numbers,
)
from textnuggets.errors import InputError

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from textnuggets.causal.modeling import CausalNuggetLM
    from textnuggets.lm.modeling import NuggetLM

app = typer.Typer(rich_markup_mode=None)

MOST_SEGMENTS = 10_000  # of the past
Model = Annotated[str, typer.Argument(help="Shipped language model (lm), folder or hub id.")]
Base = Annotated[
    str | None,
    typer.Option(
        help="Folder or hub id of the base of an adapter; the one that the adapter names by default."
    ),
]


@app.callback()
def _root() -> None:
    """Evaluate and run language models that read past text as nuggets."""


@app.command()
def evaluate(
    model: Model,
    text: Annotated[
        str,
        typer.Argument(
            help="A .txt file (one text, or articles with headings as in WikiText), or any corpus."
        ),
    ],
    history: Annotated[
        str | None,
        typer.Option(
            help="Number of past segments to read, or several numbers: 0,1,8. The model's by default."
        ),
    ] = None,
    ratio: Annotated[
        float | None,
        typer.Option(callback=check_share, help="Compression ratio of the past; the model's by default."),
    ] = None,
    stride: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=LARGEST,
            help="Number of tokens scored per segment, after the rest as context; a quarter of a segment by default. A "
            "whole segment equals streaming.",
        ),
    ] = None,
    articles: Annotated[
        int | None,
        typer.Option(min=1, max=LARGEST, help="Number of articles to use, from the first; all by default."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all figures as JSON.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for perplexity.json and .md, which 'textnuggets report' reads."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Seed of the bootstrap.")] = 0,
    tokens: Annotated[
        int | None,
        typer.Option(
            min=8,
            max=LARGEST,
            help="Adapters: number of tokens of each text, 2048 by default; shorter texts are left out.",
        ),
    ] = None,
    base: Base = None,
) -> None:
    """Measure perplexity per word and per token; of an adapter, also with other caches of the same size."""
    from textnuggets.io.corpora import check_source

    histories = None if history is None else numbers("--history", history, int, 0, MOST_SEGMENTS)
    if out is not None:
        check_folder(out, ["perplexity.*", "cached_context.*"], check_source(text) or ())
    lm = _load(model, base)
    if is_adapter(lm):
        if history is not None or stride is not None:
            raise InputError(f"--history and --stride do not apply to {model}: its cache keeps two segments.")
        evaluate_adapter(lm, text, tokens, ratio, articles, seed, out, as_json)
        return
    if tokens is not None:
        raise InputError(f"--tokens does not apply to {model}: all tokens are scored.")

    from textnuggets.evaluate.perplexity import evaluate_perplexity, read_articles, show, to_markdown
    from textnuggets.evaluate.provenance import describe_source, software, write_results
    from textnuggets.io.disk import make_folder
    from textnuggets.io.files import replacing
    from textnuggets.io.locks import writing
    from textnuggets.model.fingerprint import fingerprint

    measured = evaluate_perplexity(
        lm, read_articles(text, lm.tokenizer)[:articles], histories, ratio, stride, seed
    )
    about = {
        "question": "perplexity",
        "weights": fingerprint(lm),
        "data": [describe_source(text)],
        "seed": seed,
    }
    results = {**about, **software(), "results": measured}
    if out is not None:
        make_folder(out)
        with writing(out / "perplexity.json"):
            write_results(out / "perplexity.json", results)
            with replacing(out / "perplexity.md") as temporary:
                temporary.write_text(to_markdown(results), encoding="utf-8")
        print(f"{out / 'perplexity'}.json and .md", file=sys.stderr)
    if as_json:
        print(json.dumps(results))
        return
    for item in measured:
        word, token = show(item["word_perplexity"]), show(item["token_perplexity"])
        print(f"h = {item['history']}: perplexity by word {word}, by token {token}")
    print(f"{measured[0]['words']:,} words, {measured[0]['tokens']:,} tokens", file=sys.stderr)


@app.command()
def generate(
    model: Model,
    prompt: Annotated[Path, typer.Option(help="Text file to continue, or '-' for standard input.")],
    max_new_tokens: Annotated[
        int,
        typer.Option("--max-new-tokens", "-n", min=1, max=1_000_000, help="Number of tokens to generate."),
    ] = 200,
    history: Annotated[
        int | None,
        typer.Option(
            min=0, max=MOST_SEGMENTS, help="Number of past segments to read; the model's by default."
        ),
    ] = None,
    beams: Annotated[int, typer.Option(min=1, max=MOST_BEAMS, help="Beam width.")] = 1,
    sample: Annotated[
        bool, typer.Option("--sample", help="Sample tokens instead of choosing the most likely.")
    ] = False,
    temperature: Annotated[
        float | None,
        typer.Option(callback=between(0.01, 100), help="Temperature of --sample; 1 by default."),
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(callback=between(0.01, 1), help="Nucleus probability of --sample; 0.95 by default."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Seed of --sample.")] = 0,
    state: Annotated[
        Path | None,
        typer.Option(help="Adapters: state of 'lm compress', which the prompt continues."),
    ] = None,
    base: Base = None,
) -> None:
    """Generate a continuation of a long text."""
    if sample and beams > 1:
        raise InputError("--sample and --beams cannot be combined: choose one.")
    if not sample and (temperature is not None or top_p is not None):
        raise InputError("--temperature and --top-p have no effect without --sample.")
    text = _read(prompt)
    lm = _load(model, base)

    from transformers import set_seed

    set_seed(seed)
    options = (
        {"do_sample": True, "temperature": temperature or 1.0, "top_p": top_p or 0.95}
        if sample
        else {"num_beams": beams}
    )
    if is_adapter(lm):
        if history is not None:
            raise InputError(f"--history does not apply to {model}: its cache keeps two segments.")
        continue_text(lm, text, state, max_new_tokens, options)
        return
    if state is not None:
        raise InputError(f"--state does not apply to {model}, which is not an adapter.")
    stream = lm.open(text, history)
    kept = {"nuggets": "nuggets", "tokens": "tokens", "compressive": "pooled states"}[lm.config.memory]
    print(
        f"{stream.length:,} tokens read: {len(stream.past)} segments as {stream.size} {kept}, "
        f"{len(stream.current)} tokens directly",
        file=sys.stderr,
    )
    stream.generate(max_new_tokens, Writer(), **options)
    print()


@app.command()
def compress(
    model: Annotated[str, typer.Argument(help="Adapter of a decoder-only model: a folder or hub id.")],
    text: Annotated[Path, typer.Argument(help="Text file to read, or '-' for standard input.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="File for the state, to be continued with --state.")
    ],
    ratio: Annotated[
        float | None, typer.Option(callback=check_share, help="Compression ratio; the model's by default.")
    ] = None,
    base: Base = None,
) -> None:
    """Read a long text once, and save the nuggets of its past as a state that prompts can continue."""
    from textnuggets.io.files import check_output

    check_output(out, text)
    content = _read(text)
    lm = _load(model, base)
    if not is_adapter(lm):
        raise InputError(f"{model} is not an adapter of a decoder-only model, so it has no cache to save.")
    stream = lm.open(content, ratio)
    stream.save(out)
    whole = f"{stream.full_nbytes:,} bytes for all tokens" if stream.length else "an empty text"
    print(
        f"{stream.length:,} tokens read; {stream.size:,} are kept in {stream.nbytes:,} bytes, against {whole}",
        file=sys.stderr,
    )


def is_adapter(lm: NuggetLM | CausalNuggetLM) -> TypeIs[CausalNuggetLM]:
    """Return whether a language model is a decoder-only one with an adapter."""
    from textnuggets.causal.modeling import CausalNuggetLM

    return isinstance(lm, CausalNuggetLM)


def _read(path: Path) -> str:
    from textnuggets.io.documents import decode_utf8, standard_input

    if str(path) == "-":
        return decode_utf8(standard_input().read())
    if not path.is_file():
        raise InputError(f"{path}: no such file.")
    try:
        return decode_utf8(path.read_bytes())
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def _load(model: str, base: str | None) -> NuggetLM | CausalNuggetLM:
    from textnuggets.shipped import locate

    path = locate(model)  # reports a wrong name before torch is imported

    from textnuggets.causal.modeling import is_causal_model, load_causal_model
    from textnuggets.cli.options import quiet_transformers
    from textnuggets.lm.modeling import load_language_model

    quiet_transformers()
    if is_causal_model(path):
        return load_causal_model(path, base=base)
    if base is not None:
        raise InputError(f"--base does not apply to {model}, which is not an adapter.")
    return load_language_model(path)
