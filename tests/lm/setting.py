"""A tiny language model and texts for it."""

from __future__ import annotations

import torch

from tests.tiny import CORPUS, tiny_model, tiny_tokenizer
from textnuggets import NuggetLM
from textnuggets.lm.memory import History

SIZE = 16  # tokens per segment
LONG = " ".join(CORPUS * 2)


def make_lm(family="bart", history=3, **settings):
    torch.manual_seed(0)
    lm = NuggetLM.from_nuggets(tiny_model(family), segment=SIZE, history=history, **settings)
    with torch.no_grad():
        lm.ages.weight.normal_()  # so that ages have an effect
    return lm


def ids_of(text=LONG):
    return tiny_tokenizer()(text, add_special_tokens=False).input_ids


def logits(lm, ids, past):
    """Return the logits of a segment after past segments."""
    with torch.no_grad():
        history = History.of([lm.remember(past)]) if past else None
        return lm(torch.tensor([ids]), history).logits[0]


def segments(count, ids=None):
    ids = ids_of() if ids is None else ids
    return [ids[i * SIZE : (i + 1) * SIZE] for i in range(count)]
