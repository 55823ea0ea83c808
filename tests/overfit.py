"""Overfit a tiny model on a few texts."""

from __future__ import annotations

import torch

from tests.tiny import tiny_batch
from textnuggets import NuggetModel


def overfit(model: NuggetModel, texts: list[str], steps: int, lr: float = 5e-3) -> NuggetModel:
    torch.manual_seed(0)
    batch = tiny_batch(*texts)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=lr)
    model.train()
    for step in range(steps):
        for group in optimizer.param_groups:  # linear decay to zero, so that training converges
            group["lr"] = lr * (1 - step / steps)
        loss = model(**batch).loss
        assert loss is not None
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
    return model.eval()
