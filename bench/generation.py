"""Cost per token by context length: a NuggetLM compared with the same decoder with full attention."""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch
from matplotlib.figure import Figure
from transformers import AutoConfig, DynamicCache, EncoderDecoderCache

from bench.measuring import RESULTS, record
from textnuggets import NuggetConfig, NuggetLM, NuggetModel
from textnuggets.lm.memory import History, SegmentMemory
from textnuggets.model.budget import nugget_count
from textnuggets.model.tokenization import load_tokenizer
from textnuggets.report.figures import BLUE, RED, save_figure

SEGMENT, RATIO, STEPS = 128, 0.1, 32
CONTEXTS = (128, 256, 640, 1152, 2048, 4096, 8192)


def cost_of_context(name: str, rounds: int) -> None:
    """Measure time and memory per generated token in the middle of a segment, by context length; random weights."""
    config = AutoConfig.from_pretrained(name, trust_remote_code=False)
    config.max_position_embeddings = max(CONTEXTS) + SEGMENT
    tokenizer = load_tokenizer(name, config.model_type)
    model = NuggetModel.from_backbone(config, NuggetConfig(ratio=RATIO, scorer_layer=3), tokenizer)
    lm = NuggetLM.from_nuggets(model, SEGMENT, history=max(CONTEXTS) // SEGMENT)
    sides = {"nuggets": _nuggets, "full": _full}
    starts = {(side, context): make(lm, context) for context in CONTEXTS for side, make in sides.items()}
    seconds: dict[tuple[str, int], list[float]] = {key: [] for key in starts}
    encoding: list[float] = []
    for number in range(rounds + 1):
        # Every context in every round, in alternating order: a busy machine then slows all of them equally.
        for key, start in starts.items() if number % 2 else reversed(starts.items()):
            cache, memory = start()
            took = _decode(lm, cache, memory)
            if number:  # the first warms up
                seconds[key].append(took)
        if number:
            encoding.append(_encode(lm))
    found: list[dict[str, Any]] = []
    for context in CONTEXTS:
        row: dict[str, Any] = {"context": context}
        for side in sides:
            row[f"ms_{side}"] = round(1000 * statistics.median(seconds[side, context]), 3)
            cache, memory = starts[side, context]()
            _decode(lm, cache, memory)
            row[f"bytes_{side}"] = _bytes(cache)
        found.append(row)
        print(row)
    save_figure(draw_cost(found), RESULTS / "token-cost")
    settings = {
        "segment": SEGMENT,
        "ratio": RATIO,
        "steps": STEPS,
        "backbone": config.model_type,
        "rounds": rounds,
    }
    plain = seconds["nuggets", SEGMENT]
    for context, target in ((1152, "<= 1.25"), (8192, "<= 1.5")):
        own = seconds["nuggets", context]
        ratios = [one / other for one, other in zip(own, plain, strict=True)]
        whole = [(one + extra) / other for one, extra, other in zip(own, encoding, plain, strict=True)]
        record(
            f"token-cost-at-{context}",
            f"the time per token of the language model with {SEGMENT} tokens of context, when it has {context:,}",
            target,
            settings,
            {
                "ratio": round(statistics.median(ratios), 3),
                "ratio_min": round(min(ratios), 3),
                "ratio_max": round(max(ratios), 3),
                # Includes encoding of a full segment, spread over its SEGMENT tokens.
                "ratio_with_encoding": round(statistics.median(whole), 3),
                "ms_encoding": round(1000 * statistics.median(encoding), 3),
                "rows": found,
            },
        )
    first, last = found[0], found[-1]
    grown = (last["bytes_nuggets"] - first["bytes_nuggets"]) / (last["bytes_full"] - first["bytes_full"])
    record(
        "token-memory",
        f"the growth of memory with full attention, from {SEGMENT} to {CONTEXTS[-1]:,} tokens of context",
        "<= 0.12",
        settings,
        {"ratio": round(grown, 3), "rows": found},
    )


def draw_cost(rows: list[dict[str, Any]]) -> Figure:
    """Draw time per token and memory against the context length, for both sides."""
    figure = Figure(figsize=(8.0, 3.2), layout="constrained")
    contexts = [row["context"] for row in rows]
    for place, (key, unit, size) in enumerate((("ms", "ms per token", 1), ("bytes", "MB of memory", 1e6)), 1):
        axes = figure.add_subplot(1, 2, place)
        for side, label, colour in (("full", "full attention", RED), ("nuggets", "nuggets", BLUE)):
            axes.plot(
                contexts, [row[f"{key}_{side}"] / size for row in rows], ".-", color=colour, label=label
            )
        axes.set(xlabel="tokens of context", ylabel=unit, ylim=(0, None))
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
    return figure


def _nuggets(lm: NuggetLM, context: int) -> Any:
    """Return a function that starts from half a segment of tokens, with the rest of the context as nuggets."""
    k, d = nugget_count(SEGMENT + 1, RATIO), lm.adapter.hidden_size
    past = [SegmentMemory(torch.randn(k, d), torch.randn(k)) for _ in range(context // SEGMENT - 1)]
    history = History.of([past])
    memory = (None, None) if history is None else lm.memory_of(history)
    prompt = torch.randint(5, 1000, (1, SEGMENT // 2))

    def start() -> tuple[Any, tuple[Any, Any]]:
        cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        with torch.inference_mode():
            lm.adapter.decode(*memory, prompt, cache)
        return cache, memory

    return start


def _full(lm: NuggetLM, context: int) -> Any:
    """Return a function that starts from the whole context in the self-attention cache."""
    ids = torch.randint(5, 1000, (1, context - SEGMENT // 2))
    kept = DynamicCache()
    with torch.inference_mode():
        for part in ids.split(512, dim=1):
            lm.adapter.decode(None, None, part, kept)

    def start() -> tuple[Any, tuple[None, None]]:
        cache = DynamicCache()
        for number, layer in enumerate(kept.layers):
            cache.update(layer.keys.clone(), layer.values.clone(), number)  # type: ignore[union-attr]
        return cache, (None, None)

    return start


def _decode(lm: NuggetLM, cache: Any, memory: tuple[Any, Any]) -> float:
    """Return the seconds per token of greedy decoding."""
    token = torch.tensor([[7]])
    started = time.perf_counter()
    with torch.inference_mode():
        for _ in range(STEPS):
            token = lm.adapter.project(lm.adapter.decode(*memory, token, cache)).argmax(-1)
    return (time.perf_counter() - started) / STEPS


def _encode(lm: NuggetLM) -> float:
    """Return the seconds per token of encoding a full segment into nuggets."""
    segment = torch.randint(5, 1000, (SEGMENT,)).tolist()
    started = time.perf_counter()
    with torch.inference_mode():
        lm.remember([segment])
    return (time.perf_counter() - started) / SEGMENT


def _bytes(cache: Any) -> int:
    parts: list[Any] = [cache]
    if isinstance(cache, EncoderDecoderCache):
        parts = [cache.self_attention_cache, cache.cross_attention_cache]
    layers = [layer for part in parts for layer in part.layers if layer.keys is not None]
    return sum(int(layer.keys.nbytes + layer.values.nbytes) for layer in layers)
