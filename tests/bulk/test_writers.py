"""Two writers of one output: the second is refused, and parts of other texts are never joined."""

from __future__ import annotations

import pytest

from tests.tiny import CORPUS
from tests.train.setting import make_setting
from textnuggets.bulk import encode as bulk
from textnuggets.bulk.encode import encode_to_parquet
from textnuggets.errors import InputError
from textnuggets.evaluate.task_builders import Question, write_task
from textnuggets.io.documents import Document
from textnuggets.io.locks import writing
from textnuggets.model.parquet import load_nuggets
from textnuggets.report.reproduce import Step, carry_out

DOCUMENTS = [Document(str(i), CORPUS[i % 5][: 10 + i]) for i in range(20)]
OTHERS = [Document(str(i), CORPUS[i % 5][5 : 15 + i]) for i in range(20)]


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(bulk, "PART_TEXTS", 8)


def during(documents, number, act):
    """Yield documents, and act before the one with this number."""
    for place, document in enumerate(documents):
        if place == number:
            act()
        yield document


def test_two_encodings_into_one_file_are_not_mixed(model, tmp_path):
    out, alone = tmp_path / "out.parquet", tmp_path / "alone.parquet"
    refused = []

    def start_another():
        for resume in (False, True):
            with pytest.raises(InputError, match="is being written by another process"):
                encode_to_parquet(model, iter(OTHERS), out, name="m", resume=resume)
            refused.append(resume)

    encode_to_parquet(model, during(DOCUMENTS, 10, start_another), out, name="m", with_text=True)
    assert refused == [False, True]
    encode_to_parquet(model, iter(DOCUMENTS), alone, name="m", with_text=True)
    assert out.read_bytes() == alone.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alone.parquet", "out.parquet"]


@pytest.mark.parametrize("number", [0, 1])
def test_a_part_of_other_texts_is_not_joined(model, tmp_path, number):
    out, other = tmp_path / "out.parquet", tmp_path / "other.parquet"

    def kill():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        encode_to_parquet(model, during(OTHERS, 19, kill), other, name="m")
    name = f"part-{number:06d}.parquet"

    def mix():  # as a writer did that knew no lock
        (tmp_path / "other.parquet.partial" / name).replace(tmp_path / "out.parquet.partial" / name)

    with pytest.raises(InputError, match=f"{name} holds other texts than this run wrote: delete"):
        encode_to_parquet(model, during(DOCUMENTS, 19, mix), out, name="m")
    assert not out.exists()
    with pytest.raises(InputError, match="the texts changed"):
        encode_to_parquet(model, iter(DOCUMENTS), out, name="m", resume=True)


def test_a_shard_that_another_process_writes_is_reported(run, tmp_path, copier_folder):
    folder, out = tmp_path / "shards", tmp_path / "out"
    for place in (folder, out):
        place.mkdir()
    for name in ("a", "b"):
        (folder / f"{name}.txt").write_text(CORPUS[0])
    with writing(out / "a.parquet"):
        made = run("encode", folder, "-o", out, "--model", copier_folder)
    assert made.returncode == 2
    assert f"failed: {out / 'a.parquet'} is being written by another process" in made.stderr
    assert [path.name for path in out.iterdir()] == ["b.parquet"]
    assert run("encode", folder, "-o", out, "--model", copier_folder).returncode == 0
    assert load_nuggets(out / "a.parquet")[0] == ["1"]


def test_commands_refuse_an_output_that_another_process_writes(run, tmp_path, copier_folder):
    texts, nuggets, out = tmp_path / "a.txt", tmp_path / "a.parquet", tmp_path / "out.jsonl"
    texts.write_text(CORPUS[0])
    assert run("encode", texts, "-o", nuggets, "--model", copier_folder).returncode == 0
    partial = tmp_path / "out.jsonl.partial"
    partial.write_text("lines of the first writer")
    with writing(out):
        refused = run("reconstruct", nuggets, "-o", out, "--beams", 1)
    assert refused.returncode == 2
    assert refused.stderr == (
        f"error: {out} is being written by another process: wait for it, or write elsewhere.\n"
    )
    assert partial.read_text() == "lines of the first writer"


def test_results_and_tasks_of_two_processes_are_not_mixed(run, tmp_path, copier_folder):
    texts, out = tmp_path / "dev.txt", tmp_path / "out"
    texts.write_text("\n".join(CORPUS))
    out.mkdir()
    with writing(out / "preferences.json"):
        refused = run("evaluate", "preferences", copier_folder, texts, "-o", out)
    assert refused.returncode == 2
    assert "preferences.json is being written by another process" in refused.stderr
    with writing(out), pytest.raises(InputError, match="out is being written by another process"):
        write_task(out, [Question("a", "b", ["c"])], {"seed": 0})
    assert list(out.iterdir()) == []


def test_a_plan_is_not_run_twice_at_once(tmp_path):
    step = Step("show", ("--version",))
    with writing(tmp_path), pytest.raises(InputError, match="is being written by another process"):
        carry_out([step], tmp_path)
    assert list((tmp_path / "done").iterdir()) == []


def test_a_run_that_another_process_trains_is_refused(run, tmp_path):
    recipe, out = make_setting(tmp_path), tmp_path / "out"
    out.mkdir()
    for options in ([], ["--resume"]):
        with writing(out):
            refused = run("train", recipe, "-o", out, *options)
            assert [path.name for path in out.iterdir() if path.name != "recipe.toml"] == [".lock"]
        assert refused.returncode == 2
        assert refused.stderr.startswith(f"error: {out} is being written by another process")
        assert refused.stderr.count("\n") == 1
        (out / "recipe.toml").write_text(recipe.read_text())
