"""Code blocks, links, tables and counts of the pages."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import sys

import pytest

from bench import table
from tests.causal.setting import save_base
from tests.integrations.setting import save_colbert
from tests.model.test_tokenization import marian_folder  # noqa: F401  a fixture
from tests.pages import PAGES, ROOT, Runner, headings, links, read_blocks, stand_in_for_openai
from tests.tiny import CONFIGS, CORPUS, tiny_model, tiny_tokenizer
from tests.train.setting import make_setting
from tools import tables

BLOCKS = {name: read_blocks(name) for name in PAGES}
RUN = ("python", "sh", "toml", "")
MOST_NOT_RUN = 8
ARTICLES = {
    "booting.txt": "Booting is the start-up process of a computer. A small program in read-only memory loads the system.",
    "athlon.txt": "Athlon is a family of processors. AMD launched it in June 1999, with general availability in August.",
    "robert-e-howard.txt": "Robert E. Howard of Cross Plains wrote stories about Conan, a barbarian hero.",
    "vandals.txt": "The Vandals were a Germanic people who sacked Rome in the year 455.",
}
LETTERS = {
    "letters/1871.txt": "The engineers had warned that the old piers would not stand another flood, and the bridge fell.",
    "letters/1872.txt": "My sister was married in the spring. There was music until the morning.",
    "notes/cats.md": "# Cats\n\nThe cat sat on the mat and slept by the stove.",
}


def check_readme(names, printed):
    """After a night of rain nobody can cross the river; a letter has nothing to do with it."""
    scores = [float(number) for number in re.findall(r"-?\d+\.\d*(?:e-?\d+)?", printed[0].splitlines()[0])]
    documents = names["documents"]
    assert len(scores) == len(documents)
    assert "nobody could pass" in documents[scores.index(max(scores))]


def check_search(names, printed):  # noqa: ARG001
    """A bridge collapses in a flood, an orchestra plays music, dough is baked."""
    assert names["scores"].argmax(axis=1).tolist() == [0, 1, 2]
    assert [hit.id for hit in names["hits"]] == ["letter", "orchestra"]
    assert [hit.id for hit in names["sure"]] == ["letter"]
    assert all(hit.metadata == {"year": 1902} for hit in names["recent"])
    assert "bridge fell" in names["hits"][0].passages[0].text


RANKINGS = {"README.md": check_readme, "docs/search.md": check_search}


def write_lines(path, records):
    path.parent.mkdir(parents=True, exist_ok=True)
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)


def write_texts(folder, texts):
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def save_backbone(folder, family, **settings):
    from textnuggets.model.backbone import build_backbone

    config = CONFIGS[family]()
    config.update({"max_position_embeddings": 512, **settings})
    build_backbone(config).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)


@pytest.fixture(scope="module")
def template(tmp_path_factory, marian_folder):  # noqa: F811
    """A folder with small data and tiny models under the names that the pages use."""
    folder = tmp_path_factory.mktemp("docs") / "template"
    folder.mkdir()
    make_setting(folder).rename(folder / "my-recipe.toml")
    long_text = " ".join(CORPUS * 20)
    write_texts(
        folder,
        {
            "texts.txt": "\n".join(CORPUS) + "\n",
            "english.txt": "\n".join(CORPUS) + "\n",
            "article.txt": long_text,
            "question.txt": "Who opened the letter?",
            "sputnik.txt": " ".join(long_text.split()[:1010]),
            "wikitext.test.txt": f" = Rain = \n\n {' '.join(CORPUS)} \n\n = Cats = \n\n {' '.join(CORPUS[::-1])} \n",
            "pairs.tsv": "".join(
                f"the {i} cat sat {i}\ta cat {i} was sitting {i}\n" * 2 for i in range(1200)
            ),
            "tasks/cranfield/qrels.tsv": "query-id\tcorpus-id\tscore\n1\t1\t1\n2\t2\t1\n",
        },
    )
    write_texts(folder / "articles", ARTICLES)
    write_texts(folder / "my-documents", LETTERS)
    texts = [{"text": text} for text in CORPUS]
    write_lines(folder / "texts.jsonl", texts)
    write_lines(folder / "corpus.jsonl", [{"text": long_text}])
    for part in ("train", "dev"):
        write_lines(folder / "wikipedia" / f"{part}.jsonl.gz", [{"text": " ".join(CORPUS * 4)}] * 2)
    for part in range(2):
        write_lines(folder / "shards" / f"{part}.jsonl", texts)
    write_lines(
        folder / "more.jsonl",
        [
            {"id": "notes/howard", "text": ARTICLES["robert-e-howard.txt"], "kind": "note", "year": 1932},
            {"id": "notes/booting", "text": ARTICLES["booting.txt"], "kind": "note", "year": 1871},
        ],
    )
    heads = [f"alpha{i} beta{i} gamma{i}" for i in range(30)]
    paragraphs = [[f"{words} " * 12, f"{words} one " * 20, f"{words} two " * 20] for words in heads]
    sections = [{"sections": [{"head": "", "paras": [text]} for text in texts]} for texts in paragraphs]
    write_lines(folder / "articles.jsonl", sections)
    task = folder / "tasks" / "cranfield"
    write_lines(task / "corpus.jsonl", [{"id": str(i), "text": text} for i, text in enumerate(CORPUS)])
    write_lines(task / "queries.jsonl", [{"id": "1", "text": "the rain"}, {"id": "2", "text": "a letter"}])
    save_backbone(folder / "facebook" / "bart-base", "bart", encoder_layers=6)
    save_backbone(folder / "sentence-transformers" / "all-MiniLM-L6-v2", "bert")
    save_colbert(folder / "lightonai" / "GTE-ModernColBERT-v1", "modernbert")
    save_base(folder / "HuggingFaceTB" / "SmolLM2-135M-Instruct", positions=4096)
    tiny_model().save_pretrained(folder / "my-models" / "news")
    shutil.copytree(marian_folder, folder / "Helsinki-NLP" / "opus-mt-fr-en")
    return folder


@pytest.fixture
def folder(template, tmp_path, monkeypatch):
    """A copy of that folder, which is the current one."""
    copy = shutil.copytree(template, tmp_path / "folder")
    # The recipe names its folder.
    recipe = copy / "my-recipe.toml"
    recipe.write_text(recipe.read_text().replace(str(template), str(copy)))
    monkeypatch.chdir(copy)
    return copy


def shorten(arguments):
    """Return options that make a command fast enough for a test."""
    if arguments[0] == "train" and not any("optimizer.steps" in argument for argument in arguments):
        settings = [
            "optimizer.steps=2",
            "optimizer.batch_tokens=256",
            "report.documents=2",
            "report.bleu_documents=1",
        ]
        settings += ["optimizer.warmup_steps=0", "optimizer.precision=float32"]
        return [part for setting in settings for part in ("--set", setting)]
    if arguments[:2] == ["lm", "generate"] and "--max-new-tokens" not in arguments:
        return ["--max-new-tokens", "20"]
    if arguments[:2] == ["lm", "evaluate"]:
        return ["--articles", "1"]
    if arguments[0] == "evaluate" and arguments[1] != "similarity":
        fewer = ["--ratios", "0.1", "--beams", "1"] if arguments[1] == "reconstruction" else []
        return ["--documents", "1", "--max-tokens", "32", *fewer]
    return []


@pytest.fixture
def runner(run, folder, monkeypatch):  # noqa: ARG001
    """Runs blocks in that folder."""
    if "openai" not in sys.modules:
        monkeypatch.setitem(sys.modules, "openai", stand_in_for_openai())
    made = Runner(run, shorten)
    yield made
    made.stop()


def run_page(runner, name):
    for block in BLOCKS[name]:
        if block.not_run is None and block.language in RUN:
            runner.execute(block)


@pytest.mark.parametrize("name", [name for name, blocks in BLOCKS.items() if blocks])
def test_every_block_of_the_page_runs(name, runner):
    run_page(runner, name)
    if name in RANKINGS:
        RANKINGS[name](runner.names, runner.printed)


def test_few_blocks_are_not_run_and_each_says_why():
    left_out = [block for blocks in BLOCKS.values() for block in blocks if block.not_run is not None]
    assert len(left_out) <= MOST_NOT_RUN
    marks = sum(PAGES[name].read_text(encoding="utf-8").count("<!-- not run") for name in PAGES)
    assert marks == len(left_out), "a mark is not right above a block"
    assert {block.language for blocks in BLOCKS.values() for block in blocks} <= set(RUN)


def test_every_link_and_anchor_leads_somewhere():
    for name, path in PAGES.items():
        for link in links(name):
            if link.startswith("https://"):
                continue
            target, _, anchor = link.partition("#")
            found = (path.parent / target).resolve() if target else path
            assert found.exists(), f"{name}: {link}"
            if anchor:
                assert anchor in headings(found.relative_to(ROOT).as_posix()), f"{name}: {link}"


def test_the_tables_are_what_the_results_files_say():
    for tool in (table, tables):
        for page in tool.PAGES:
            text = page.read_text(encoding="utf-8")
            assert tool.fill(text) == text


def test_the_pages_name_only_options_that_exist():
    """Options in prose, such as `--resume`, are those of some command or of a program named beside them."""
    import typer.main

    from textnuggets.cli import app

    def options(command):
        found = {
            name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)
        }
        return found.union(*(options(below) for below in getattr(command, "commands", {}).values()))

    known = options(typer.main.get_command(app)) | {
        "--help",
        "--only",
        "--passages",
        "--questions",
        "--task",
        "--shutdown-timeout",
        "--logdir",
        "--case",
    }
    for name in PAGES:
        text = re.sub(
            r"^```.*?^```", "", PAGES[name].read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
        )
        named = {
            option
            for code in re.findall(r"`([^`\n]+)`", text)
            for option in re.findall(r"(?<!\S)--[a-z][a-z0-9-]*", code)
        }
        assert named <= known, f"{name}: {named - known}"
