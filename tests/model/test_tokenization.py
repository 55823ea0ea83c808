"""The fast Marian tokenizer; that of transformers has no offsets."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest
import sentencepiece
from transformers import MarianTokenizer

from tests.tiny import CONFIGS, CORPUS, tiny_model
from textnuggets import NuggetConfig, NuggetModel
from textnuggets.errors import BackboneError
from textnuggets.model.tokenization import load_tokenizer

TEXTS = [
    *CORPUS,
    "",
    "  two   spaces ",
    "a\nb\tc",
    "ﬁne ligature",
    "Unknown: ж 😀 中.",
    "the CAT",
    "x" * 300,
    ">>fra<< The cat sat.",
]


@pytest.fixture(scope="module")
def marian_folder(tmp_path_factory) -> Path:
    """Marian folder as on the Hub: weights, two SentencePiece models and a joint vocab.json."""
    folder = tmp_path_factory.mktemp("marian")
    (folder / "corpus.txt").write_text("\n".join(CORPUS * 20))
    for side in ("source", "target"):
        sentencepiece.SentencePieceTrainer.train(
            input=str(folder / "corpus.txt"),
            model_prefix=str(folder / side),
            vocab_size=85 if side == "source" else 70,
            minloglevel=2,
        )
        (folder / f"{side}.model").rename(folder / f"{side}.spm")
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "source.spm"))
    other = sentencepiece.SentencePieceProcessor(model_file=str(folder / "target.spm"))
    names = {p.id_to_piece(i): None for p in (other, pieces) for i in range(p.get_piece_size())}
    for special in ("<s>", "</s>", "<unk>"):
        del names[special]
    tokens = ["</s>", "<unk>", *names, ">>fra<<", "<pad>"]
    (folder / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(tokens)}))
    settings = {"tokenizer_class": "MarianTokenizer", "source_lang": "en", "target_lang": "en"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    config = CONFIGS["marian"]()
    ids = {"vocab_size": len(tokens), "decoder_vocab_size": len(tokens), "pad_token_id": len(tokens) - 1}
    config.update({**ids, "eos_token_id": 0, "bos_token_id": 0, "decoder_start_token_id": len(tokens) - 1})
    from transformers import MarianMTModel

    MarianMTModel(config).save_pretrained(folder)
    return folder


def test_it_encodes_and_decodes_like_marian_tokenizer(marian_folder):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the warning recommends a package that is not needed
        slow = MarianTokenizer.from_pretrained(marian_folder)
    fast = load_tokenizer(str(marian_folder), "marian")
    for text in TEXTS:
        ids = slow(text).input_ids
        assert fast(text).input_ids == ids, text
        assert fast.decode(ids, skip_special_tokens=True) == slow.decode(ids, skip_special_tokens=True)


def test_a_marian_folder_becomes_a_nugget_model_with_spans(marian_folder, tmp_path):
    model = NuggetModel.from_backbone(marian_folder, NuggetConfig(scorer_layer=1, ratio=1.0))
    (nuggets,) = model.encode([CORPUS[0]])
    assert "".join(CORPUS[0][a:b] for a, b in nuggets.spans) == CORPUS[0].replace(" ", "")
    model.save_pretrained(tmp_path)
    again = NuggetModel.from_pretrained(tmp_path)
    assert again.tokenizer(CORPUS[0]).input_ids == model.tokenizer(CORPUS[0]).input_ids


def test_a_marian_folder_without_its_pieces_says_which_files_are_missing(tmp_path):
    tiny_model("marian").backbone.save_pretrained(tmp_path)
    with pytest.raises(BackboneError, match=r"needs source\.spm and vocab\.json"):
        NuggetModel.from_backbone(tmp_path, NuggetConfig(scorer_layer=1))
