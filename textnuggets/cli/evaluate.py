"""textnuggets evaluate: one subcommand per question of the paper.

Each writes DIR/QUESTION.json, a table QUESTION.md and figures QUESTION.png and .svg.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from textnuggets.cli.options import (
    LARGEST,
    LARGEST_SEED,
    MODEL,
    MOST_BEAMS,
    check_folder,
    check_share,
    numbers,
    quiet_transformers,
)
from textnuggets.errors import InputError

if TYPE_CHECKING:
    from textnuggets.model.modeling import NuggetModel

app = typer.Typer(rich_markup_mode=None)

SHORTEST, LONGEST = 8, 1_000_000  # tokens of a document
Model = Annotated[str, typer.Argument(help=f"{MODEL}.")]
Data = Annotated[list[str], typer.Argument(help="Corpora, as for 'train'.")]
Out = Annotated[Path, typer.Option("--out", "-o", help="Folder for results, table and figure.")]
Ratio = Annotated[
    float | None, typer.Option(callback=check_share, help="Compression ratio; the model's own by default.")
]
Documents = Annotated[int, typer.Option(min=1, max=LARGEST, help="Number of documents drawn.")]
MaxTokens = Annotated[
    str, typer.Option(help="Maximum number of tokens per document; one or more, such as 64,128.")
]
OneMaxTokens = Annotated[
    int, typer.Option(min=SHORTEST, max=LONGEST, help="Maximum number of tokens per document.")
]
Languages = Annotated[
    str,
    typer.Option(help="Language of the texts; source,target for a translation model, such as en,fr."),
]
Seed = Annotated[
    int, typer.Option(min=0, max=LARGEST_SEED, help="Seed of the sample of documents and of the bootstrap.")
]


@app.callback()
def _root() -> None:
    """Evaluate a model: reconstruction, choice and content of nuggets, and similarity."""


@app.command()
def reconstruction(
    model: Model,
    data: Data,
    out: Out,
    ratios: Annotated[
        str, typer.Option(help="Compression ratios; 0 is a single vector.")
    ] = "0,0.05,0.1,0.15,0.25,0.5",
    beams: Annotated[int, typer.Option(min=1, max=MOST_BEAMS, help="Beam width; 5 in the paper.")] = 5,
    documents: Documents = 200,
    max_tokens: MaxTokens = "128",
    languages: Languages = "en",
    seed: Seed = 0,
) -> None:
    """Measure BLEU, exact match and token accuracy of texts decoded from their nuggets, by ratio."""
    parsed = numbers("--ratios", ratios, float, 0, 1)
    sizes = numbers("--max-tokens", max_tokens, int, SHORTEST, LONGEST)
    loaded = _prepare("reconstruction", model, data, out)

    from textnuggets.evaluate.reconstruction import evaluate_reconstruction, to_markdown
    from textnuggets.evaluate.sample import Sample
    from textnuggets.report.figures import draw_reconstruction

    sample = Sample(data, documents, languages.split(","), seed)
    results = evaluate_reconstruction(loaded, sample, parsed, beams, sizes)
    by_length = {
        f"up to {size:g} tokens": {"results": [r for r in results["results"] if r["max_tokens"] == size]}
        for size in sizes
    }
    figure = draw_reconstruction(list(by_length.items()))
    _write(out, "reconstruction", results, to_markdown(results), {"": figure})


@app.command()
def preferences(
    model: Model,
    data: Data,
    out: Out,
    ratio: Ratio = None,
    documents: Documents = 1000,
    max_tokens: OneMaxTokens = 128,
    languages: Languages = "en",
    seed: Seed = 0,
) -> None:
    """Measure which tokens become nuggets, compared with how often they occur."""
    loaded = _prepare("preferences", model, data, out)

    from textnuggets.evaluate.preferences import evaluate_preferences, to_markdown
    from textnuggets.evaluate.sample import Sample
    from textnuggets.report.figures import draw_preferences

    results = evaluate_preferences(loaded, Sample(data, documents, [languages], seed), ratio, max_tokens)
    _write(out, "preferences", results, to_markdown(results), {"": draw_preferences(results)})


@app.command()
def probing(
    model: Model,
    data: Data,
    out: Out,
    ratio: Ratio = None,
    documents: Documents = 1000,
    max_tokens: MaxTokens = "128",
    languages: Languages = "en",
    seed: Seed = 0,
) -> None:
    """Measure what a nugget encodes: the probability gain of the text when only it is exposed."""
    sizes = numbers("--max-tokens", max_tokens, int, SHORTEST, LONGEST)
    loaded = _prepare("probing", model, data, out)

    from textnuggets.evaluate.probing import SHOWN, evaluate_probing, to_markdown
    from textnuggets.evaluate.sample import Sample
    from textnuggets.report.figures import draw_gain_around, draw_gain_by_order

    results = evaluate_probing(loaded, Sample(data, documents, languages.split(","), seed), ratio, sizes)
    figures = {"": draw_gain_around(results)}
    for found in results["results"]:
        figures[f"-{found['max_tokens']}"] = draw_gain_by_order(found)
        figures[f"-{found['max_tokens']}-all"] = draw_gain_by_order(found, range(1, SHOWN + 1))
    _write(out, "probing", results, to_markdown(results), figures)


@app.command()
def fidelity(
    model: Model,
    data: Data,
    out: Out,
    fidelity: Annotated[
        float, typer.Option(callback=check_share, help="Target BLEU of each document, from 0 to 1.")
    ] = 0.95,
    documents: Documents = 200,
    max_tokens: OneMaxTokens = 128,
    seed: Seed = 0,
) -> None:
    """Measure how many vectors 'encode --fidelity' saves compared with one ratio for all documents."""
    loaded = _prepare("fidelity", model, data, out)

    from textnuggets.evaluate.fidelity import evaluate_fidelity, to_markdown
    from textnuggets.evaluate.sample import Sample
    from textnuggets.report.figures import draw_fidelity

    results = evaluate_fidelity(loaded, Sample(data, documents, seed=seed), fidelity, max_tokens)
    _write(out, "fidelity", results, to_markdown(results), {"": draw_fidelity(results)})


@app.command()
def similarity(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="SYSTEM... TASK",
            help="Systems to compare: 'bm25' or [LABEL=]MODEL[:METHOD][@RATIO[/QUERY_RATIO]]. METHOD replaces the model's nuggets: "
            "all, bits, mean, every, random, chunk_means, ward, chunking, sentences, or passages[@WORDS]. The last argument "
            "is the task's folder.",
        ),
    ],
    out: Out,
    similarity: Annotated[
        str, typer.Option(help="Similarity of vectors: maxsim, symmetric or matching.")
    ] = "maxsim",
    query_ratio: Annotated[
        float | None, typer.Option(callback=check_share, help="Compression ratio of the queries.")
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            help="One of the systems; report the difference of every other system from it, query by query."
        ),
    ] = None,
    queries: Annotated[
        int | None, typer.Option(min=1, max=LARGEST, help="Use only the first N queries.")
    ] = None,
    grades: Annotated[
        str | None, typer.Option(help="Mapping of grades in the qrels, such as 1=4,2=3; others are left out.")
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(help="Queries of a collection in BEIR's layout: test (the default), dev or train."),
    ] = None,
    lowercase: Annotated[
        bool, typer.Option("--lowercase", help="Convert texts to lower case, for collections in capitals.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Measure only systems that are not in the results in --out yet.")
    ] = False,
    seed: Seed = 0,
) -> None:
    """Rank documents by similarity: nuggets, BM25, all tokens and other ways to reduce vectors."""
    if len(names) < 2:
        raise InputError("give at least one system, followed by the folder of a task.")
    *systems, folder = names
    meaning = None if grades is None else _grades(grades)
    check_folder(out)

    from textnuggets.evaluate.tasks import read_task

    task = read_task(folder, seed, meaning, lowercase, split).head(queries)

    from textnuggets.evaluate.provenance import write_results
    from textnuggets.evaluate.similarity import evaluate_similarity, to_markdown
    from textnuggets.io.disk import make_folder
    from textnuggets.io.files import read_json_object
    from textnuggets.io.locks import writing
    from textnuggets.report.figures import draw_similarity

    quiet_transformers()
    path = out / "similarity.json"
    make_folder(out)
    with writing(path):
        earlier = read_json_object(path) if resume and path.is_file() else None
        keep = partial(write_results, path)
        results = evaluate_similarity(systems, task, similarity, query_ratio, baseline, seed, earlier, keep)
        _write_files(out, "similarity", results, to_markdown(results), {"": draw_similarity(results)})


def _grades(text: str) -> dict[int, int]:
    try:
        return {int(old): int(new) for old, _, new in (part.partition("=") for part in text.split(","))}
    except ValueError as error:
        raise InputError(f"--grades {text}: write old=new separated by commas, such as 1=4,2=3.") from error


def _prepare(question: str, model: str, data: list[str], out: Path) -> NuggetModel:
    """Check corpora and output folder, then load the model."""
    from textnuggets.io.corpora import check_source

    files = [file for source in data for file in check_source(source) or ()]
    check_folder(out, [f"{question}*"], files)

    from textnuggets.cli.options import load_model

    return load_model(model)


def _write(out: Path, question: str, results: dict[str, Any], table: str, figures: dict[str, Any]) -> None:
    """Write the files of a question, unless another process does."""
    from textnuggets.io.disk import make_folder
    from textnuggets.io.locks import writing

    make_folder(out)
    with writing(out / f"{question}.json"):
        _write_files(out, question, results, table, figures)


def _write_files(
    out: Path, question: str, results: dict[str, Any], table: str, figures: dict[str, Any]
) -> None:
    from textnuggets.evaluate.provenance import write_results
    from textnuggets.io.files import replacing
    from textnuggets.report.figures import save_figure

    write_results(out / f"{question}.json", results)
    with replacing(out / f"{question}.md") as temporary:
        temporary.write_text(table, encoding="utf-8")
    for ending, figure in figures.items():
        save_figure(figure, out / f"{question}{ending}")
    print(table, end="")
    print(f"{out / question}.json, .md, .png and .svg", file=sys.stderr)
