"""Tiny randomly initialized models of every family, built in milliseconds without network access."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.processors import TemplateProcessing
from transformers import (
    BartConfig,
    BertConfig,
    DistilBertConfig,
    MarianConfig,
    MBartConfig,
    ModernBertConfig,
    MPNetConfig,
    PegasusConfig,
    PreTrainedConfig,
    PreTrainedTokenizerFast,
    RobertaConfig,
    T5Config,
    XLMRobertaConfig,
)

from textnuggets import NuggetConfig, NuggetModel

CORPUS = [
    "The cat sat on the mat, and the dog lay by the door.",
    "Rain fell all night; in the morning, the river had risen over the bridge.",
    "She opened the letter, read it twice, and put it back into the drawer.",
    "Nobody knew who had built the old house near the water. It stood empty.",
    "He counted the coins, one by one, until the lamp went out.",
]
PAD, BOS, EOS, UNK = range(4)
WIDTH, LAYERS, WINDOW = 32, 3, 64


@cache
def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """Return a deterministic tokenizer of the corpus's characters and character pairs; texts become <s> text </s>."""
    words = ["\u2581" + word for text in CORPUS for word in text.split()]
    pairs = sorted({word[i : i + 2] for word in words for i in range(len(word) - 1) if word[i + 1].isalpha()})
    characters = sorted({character for word in words for character in word})
    scores = [(piece, -1.0 - i / 1000) for i, piece in enumerate(pairs)]
    scores += [(piece, -5.0) for piece in characters]
    specials = [(token, 0.0) for token in ("<pad>", "<s>", "</s>", "<unk>")]
    tokenizer = Tokenizer(models.Unigram([*specials, *scores], UNK, False))
    spaces = [normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()]
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), *spaces])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.post_processor = TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", BOS), ("</s>", EOS)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )


def _ids() -> dict[str, Any]:
    return {
        "vocab_size": len(tiny_tokenizer()),
        "pad_token_id": PAD,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
    }


def _bart_like(kind: type[PreTrainedConfig]) -> PreTrainedConfig:
    return kind(
        **_ids(),
        d_model=WIDTH,
        encoder_layers=LAYERS,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_position_embeddings=WINDOW,
        decoder_start_token_id=EOS,
        forced_eos_token_id=None,
        forced_bos_token_id=None,
        init_std=0.1,
    )


def _t5(activation: str) -> PreTrainedConfig:
    return T5Config(
        **_ids(),
        d_model=WIDTH,
        d_kv=8,
        d_ff=64,
        num_layers=LAYERS,
        num_decoder_layers=2,
        num_heads=4,
        feed_forward_proj=activation,
        decoder_start_token_id=PAD,
        tie_word_embeddings=activation == "relu",
    )


def _bert_like(kind: type[PreTrainedConfig], positions: int = WINDOW) -> PreTrainedConfig:
    return kind(
        **_ids(),
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=positions,
    )


def _modernbert() -> PreTrainedConfig:
    return ModernBertConfig(
        **_ids(),
        cls_token_id=BOS,
        sep_token_id=EOS,
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=WINDOW,
        local_attention=16,
        mlp_dropout=0.1,
    )


CONFIGS = {
    "bart": lambda: _bart_like(BartConfig),
    "mbart": lambda: _bart_like(MBartConfig),
    "marian": lambda: _bart_like(MarianConfig),
    "pegasus": lambda: _bart_like(PegasusConfig),
    "t5": lambda: _t5("relu"),
    "t5-gated": lambda: _t5("gated-gelu"),
    "bert": lambda: _bert_like(BertConfig),
    "roberta": lambda: _bert_like(RobertaConfig, WINDOW + 2),
    "xlm-roberta": lambda: _bert_like(XLMRobertaConfig, WINDOW + 2),
    "distilbert": lambda: DistilBertConfig(
        **_ids(), dim=WIDTH, n_layers=LAYERS, n_heads=4, hidden_dim=64, max_position_embeddings=WINDOW
    ),
    "modernbert": lambda: _modernbert(),
    "mpnet": lambda: _bert_like(MPNetConfig, WINDOW + 2),
}
DECODERS = ("bart", "mbart", "marian", "pegasus", "t5", "t5-gated")
ENCODERS = ("bert", "roberta", "xlm-roberta", "distilbert", "modernbert", "mpnet")
FAMILIES = (*DECODERS, *ENCODERS)


def tiny_model(family: str = "bart", attention: str | None = None, **settings: Any) -> NuggetModel:
    """Return a tiny nugget model with random weights from a fixed seed."""
    torch.manual_seed(0)
    config = NuggetConfig(**{"ratio": 0.25, "scorer_layer": 1, **settings})
    options = {} if attention is None else {"attn_implementation": attention}
    return NuggetModel.from_backbone(CONFIGS[family](), config, tiny_tokenizer(), **options)


def tiny_batch(*texts: str) -> dict[str, torch.Tensor]:
    """Return input ids, mask and labels of a few texts."""
    batch = tiny_tokenizer()(list(texts or CORPUS[:3]), padding=True, return_tensors="pt")
    labels = batch.input_ids.masked_fill(batch.attention_mask == 0, -100)
    return {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask, "labels": labels}
