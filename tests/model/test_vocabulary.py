"""Vocabulary trimming preserves results on texts of the kept language."""

from __future__ import annotations

import json
import zlib

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from tests.model.test_tokenization import marian_folder  # noqa: F401  a fixture
from tests.tiny import CONFIGS, CORPUS, tiny_model, tiny_tokenizer
from textnuggets import NuggetConfig, NuggetModel
from textnuggets.errors import CheckpointError, ConfigError
from textnuggets.model.backbone import build_backbone
from textnuggets.model.tokenization import load_tokenizer
from textnuggets.model.vocabulary import trim

KEPT, LOST = CORPUS[:2], CORPUS[2:]
SPECIAL = ["<pad>", "<s>", "</s>", "<unk>"]


def wordpiece():
    tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer, trainers.WordPieceTrainer(vocab_size=150, special_tokens=SPECIAL)


def byte_pairs():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    return tokenizer, trainers.BpeTrainer(vocab_size=400, special_tokens=SPECIAL, initial_alphabet=alphabet)


def trained(make):
    tokenizer, trainer = make()
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )


@pytest.fixture(params=["unigram", "wordpiece", "byte_pairs"])
def folder(request, tmp_path):
    """BART folder with a tokenizer of each type."""
    made = {"unigram": tiny_tokenizer, "wordpiece": lambda: trained(wordpiece)}
    tokenizer = made.get(request.param, lambda: trained(byte_pairs))()
    config = CONFIGS["bart"]()
    config.vocab_size = len(tokenizer)
    torch.manual_seed(0)
    build_backbone(config).save_pretrained(tmp_path / "backbone")
    tokenizer.save_pretrained(tmp_path / "backbone")
    return tmp_path / "backbone"


def test_texts_of_the_kept_language_are_cut_into_the_same_pieces(folder, tmp_path):
    trimmed = trim(str(folder), KEPT)
    before = load_tokenizer(str(folder), "bart")
    assert len(trimmed.tokenizer) < len(before)
    trimmed.tokenizer.save_pretrained(tmp_path / "saved")
    for after in (trimmed.tokenizer, load_tokenizer(str(tmp_path / "saved"), "bart")):
        for text in [*KEPT, " ".join(KEPT), ""]:
            old, new = before(text, return_offsets_mapping=True), after(text, return_offsets_mapping=True)
            assert [trimmed.kept[i] for i in new.input_ids] == old.input_ids
            assert new.offset_mapping == old.offset_mapping
            assert after.decode(new.input_ids) == before.decode(old.input_ids)


def test_other_texts_can_still_be_written_with_single_characters(folder):
    trimmed = trim(str(folder), KEPT)
    before = load_tokenizer(str(folder), "bart")
    for text in LOST:
        unknown = trimmed.tokenizer(text).input_ids.count(trimmed.tokenizer.unk_token_id or -1)
        assert unknown <= before(text).input_ids.count(before.unk_token_id or -1)


def test_the_trimmed_model_computes_the_same(folder):
    trimmed = trim(str(folder), KEPT)
    model = NuggetModel.from_backbone(folder, NuggetConfig(scorer_layer=1))
    old = model.tokenizer(KEPT, return_tensors="pt", padding=True)
    new = trimmed.tokenizer(KEPT, return_tensors="pt", padding=True)
    with torch.no_grad():
        expected = model.backbone(**old, labels=old.input_ids).logits[..., trimmed.kept]
        found = trimmed.model(**new, labels=new.input_ids).logits
    torch.testing.assert_close(found, expected)
    assert trimmed.model.num_parameters() < trimmed.parameters_before


def test_a_trained_nugget_model_can_be_trimmed_and_still_copies(copier_folder, tmp_path):
    # All pieces of the corpus are kept; only unused ones are removed.
    trimmed = trim(copier_folder, CORPUS)
    trimmed.model.save_pretrained(tmp_path / "small")
    small, large = NuggetModel.from_pretrained(tmp_path / "small"), NuggetModel.from_pretrained(copier_folder)
    nuggets = small.encode(CORPUS)
    for ours, theirs in zip(nuggets, large.encode(CORPUS), strict=True):
        assert ours.vectors == pytest.approx(theirs.vectors, abs=1e-5)
    assert small.reconstruct(nuggets, num_beams=1) == CORPUS


def test_ids_in_the_configuration_follow(marian_folder):  # noqa: F811
    trimmed = trim(str(marian_folder), KEPT, spm=marian_folder / "source.spm")
    config, tokenizer = trimmed.model.config, trimmed.tokenizer
    assert config.vocab_size == config.decoder_vocab_size == len(tokenizer) == len(trimmed.kept)
    assert config.pad_token_id == config.decoder_start_token_id == tokenizer.pad_token_id
    assert config.eos_token_id == tokenizer.eos_token_id
    assert tokenizer("The cat").input_ids[-1] == tokenizer.eos_token_id


def test_a_tokenizer_with_pieces_beyond_the_embeddings_is_refused(folder):
    config = json.loads((folder / "tokenizer.json").read_text())
    added = {**config["added_tokens"][0], "id": 10_000, "content": "<more>"}
    config["added_tokens"].append(added)
    (folder / "tokenizer.json").write_text(json.dumps(config))
    with pytest.raises(
        CheckpointError, match=r"tokenizer has \d+ pieces, but its weights have embeddings for"
    ):
        trim(folder, KEPT)


def test_pieces_rarer_than_min_count_are_removed(folder):
    often = trim(str(folder), KEPT * 2 + LOST, min_count=3)
    all_of_them = trim(str(folder), KEPT * 2 + LOST)
    assert len(often.kept) < len(all_of_them.kept)


def test_the_command_writes_a_folder_that_trains(run, folder, tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(KEPT))

    done = run("trim", folder, "--texts", texts, "--out", tmp_path / "small")
    assert done.returncode == 0, done.stderr
    assert "pieces" in done.stderr
    NuggetModel.from_backbone(tmp_path / "small", NuggetConfig(scorer_layer=1))
    assert json.loads((tmp_path / "small" / "config.json").read_text())["vocab_size"] < 400
    for wrong, words in (
        ((folder, "--texts", texts, "--out", tmp_path / "small"), "already exists"),
        ((folder, "--texts", "none.txt", "--out", tmp_path / "b"), "no such file"),
        ((tmp_path / "none", "--texts", texts, "--out", tmp_path / "b"), "cannot load"),
        ((folder, "--texts", texts, "--out", tmp_path / "b", "--spm", texts), "is for a Marian backbone"),
    ):
        failed = run("trim", *wrong)
        assert failed.returncode == 2
        assert words in failed.stderr
        assert len(failed.stderr.strip().splitlines()) == 1


def test_compact_weights_are_nearly_the_same_in_a_quarter_of_the_space(tmp_path):
    model = tiny_model("marian", ratio=0.5)
    model.save_pretrained(tmp_path / "whole")
    model.save_pretrained(tmp_path / "compact", compact_weights=True)
    sizes = [
        sum(f.stat().st_size for f in (tmp_path / n).glob("*.safetensors")) for n in ("whole", "compact")
    ]
    assert sizes[1] < 0.45 * sizes[0]  # names and norms are a large part of a model this small
    found = NuggetModel.from_pretrained(tmp_path / "compact")
    for name, value in model.state_dict().items():
        # Half a quantization step of the largest value in its group.
        assert (found.state_dict()[name] - value).abs().max() <= value.abs().max() / 127 * 0.51 + 1e-4, name
    assert found.backbone.lm_head.weight is found.backbone.model.shared.weight
    (tmp_path / "compact" / "compact-1-of-1.safetensors").unlink()
    with pytest.raises(OSError, match="which is missing"):
        NuggetModel.from_pretrained(tmp_path / "compact")


def test_weights_of_fewer_bits_compress_better_and_differ_more(tmp_path):
    model = tiny_model("marian")
    packed, error = [], []
    for bits in (8, 6):
        model.save_pretrained(tmp_path / str(bits), compact_weights=bits)
        file = next((tmp_path / str(bits)).glob("*.safetensors"))
        packed.append(len(zlib.compress(file.read_bytes())))
        found = NuggetModel.from_pretrained(tmp_path / str(bits)).state_dict()
        weight = model.state_dict()["backbone.model.shared.weight"]
        error.append(float((found["backbone.model.shared.weight"] - weight).abs().max() / weight.abs().max()))
    assert packed[1] < packed[0]
    assert error[0] < 0.51 / 127 < error[1] < 0.51 / 31
    with pytest.raises(ConfigError, match="4 to 8 bits, got 3"):
        model.save_pretrained(tmp_path / "x", compact_weights=3)
    assert not (tmp_path / "x").exists()
