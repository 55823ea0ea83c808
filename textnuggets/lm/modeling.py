"""NuggetLM: a language model that reads the nuggets of past segments, with loading, saving and generation."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, Self

from transformers import AutoConfig, AutoModel

from textnuggets.causal.config import CausalConfig
from textnuggets.causal.modeling import CausalNuggetLM
from textnuggets.errors import CheckpointError, ConfigError
from textnuggets.io.disk import make_folder, sync_files
from textnuggets.lm.config import Memory, NuggetLMConfig
from textnuggets.lm.decoder import SegmentDecoder
from textnuggets.lm.delta import read_difference, write_difference
from textnuggets.lm.stream import Stream
from textnuggets.model.checkpoint import (
    best_device,
    check_complete,
    check_shards,
    explain_loading,
    explain_saved,
    hub_options,
    quiet_loading,
)
from textnuggets.model.families import backbone_window
from textnuggets.model.modeling import NuggetModel
from textnuggets.model.tokenization import load_tokenizer, special_frame
from textnuggets.model.trial import check_finite, try_model
from textnuggets.shipped import locate


class NuggetLM(SegmentDecoder):
    """A language model that reads its past as nuggets."""

    @classmethod
    def from_nuggets(
        cls,
        model: NuggetModel,
        segment: int = 128,
        history: int = 8,
        memory: Memory = "nuggets",
        pooled: int = 16,
    ) -> Self:
        """Create a language model from the encoder and decoder of a trained nugget model, without copying them.

        Args:
            model: The nugget model.
            segment: Number of tokens per segment.
            history: Number of past segments to read.
            memory: Representation of past segments; see `NuggetLMConfig`.
            pooled: Number of positions that the memory `compressive` pools into one.
        """
        lm = cls(NuggetLMConfig(model.config, segment, history, memory, pooled), model)
        lm.check_room(history)
        frame = sum(map(len, special_frame(model.tokenizer)))
        if memory == "nuggets" and segment + frame > (room := backbone_window(model.adapter.config)):
            raise ConfigError(
                f"a segment of {segment} tokens and {frame} special tokens exceed the encoder's window of {room}."
            )
        lm.ages.to(device=model.device, dtype=model.dtype)
        return lm.eval()

    @classmethod
    def from_pretrained(cls, name: str | Path, *args: Any, **options: Any) -> Self:  # type: ignore[override]
        """Load a saved language model: a shipped one by name, a folder or a hub id.

        Return a `CausalNuggetLM` if it is the adapter of a decoder-only model.
        """
        name = locate(name)
        hub = hub_options(options)
        with explain_saved(str(name)), quiet_loading():
            settings, _ = NuggetLMConfig.get_config_dict(str(name), **hub)
            if (kind := settings.get("model_type")) == CausalConfig.model_type:
                return CausalNuggetLM.from_pretrained(name, *args, **options)  # type: ignore[return-value]
            if kind != NuggetLMConfig.model_type:
                raise CheckpointError(
                    f"{str(name)!r} is a {kind!r} model, not a language model with nuggets."
                )
            if settings.get("base"):
                given = options.pop("config", None)  # AutoModel passes it
                config = deepcopy(given) or NuggetLMConfig(**settings)
                return read_difference(cls, str(name), config, hub, **options)
            check_shards(str(name), hub.get("subfolder", ""))
            loaded: Any = super().from_pretrained(
                str(name), *args, use_safetensors=True, output_loading_info=True, **options
            )
            model, report = loaded
            check_complete(str(name), report["missing_keys"])
            check_finite(model, str(name))
            model.nugget._tokenizer = load_tokenizer(str(name), "nugget", **hub)
            model.nugget.adapter.load_generation_config(str(name), **hub)
            model.check_room(model.config.history)
            try_model(model.nugget, str(name))
        model.nugget._freeze()
        return model

    def save_difference(self, path: str | Path, base: str, original: NuggetModel) -> None:
        """Write only the weights that differ from a nugget model, as int8.

        Args:
            path: Folder to write to.
            base: Name under which `textnuggets.load` finds the nugget model.
            original: The nugget model.
        """
        write_difference(self, Path(path), base, original)

    def save_pretrained(self, path: str | Path, **options: Any) -> None:  # type: ignore[override]
        """Write `config.json`, safetensors and the tokenizer."""
        make_folder(Path(path))
        super().save_pretrained(str(path), **options)
        if options.get("is_main_process", True):
            self.tokenizer.save_pretrained(str(path))
            self.nugget.adapter.save_generation_config(Path(path))
            sync_files(Path(path))

    def open(self, text: str | Sequence[int] = "", history: int | None = None) -> Stream:
        """Return a stream: a growing text whose past segments are compressed.

        Args:
            text: Beginning of the text, as a string or token ids.
            history: Maximum number of past segments to keep, which bounds the memory of a stream; the model's
                history by default.
        """
        stream = Stream(self, self.config.history if history is None else history)
        stream.append(text)
        return stream

    def generate(
        self,
        text: str | Sequence[int],
        max_new_tokens: int = 200,
        history: int | None = None,
        **options: Any,
    ) -> str:
        """Return a continuation of a text; greedy by default.

        Args:
            text: Text of any length, as a string or token ids.
            max_new_tokens: Number of tokens to generate.
            history: Maximum number of past segments to read; the model's history by default.
            options: Options of `Stream.generate`, such as `do_sample`, `top_p` or `num_beams`.
        """
        return self.open(text, history).generate(max_new_tokens, **options)


def is_language_model(name: str) -> bool:
    """Return whether a shipped name, folder or hub id is a language model."""
    path = locate(name)
    with explain_loading(path):
        settings, _ = NuggetLMConfig.get_config_dict(path)
        return bool(settings.get("model_type") == NuggetLMConfig.model_type)


def load_language_model(name: str | Path, device: str | None = None, **options: Any) -> NuggetLM:
    """Load a language model onto a device; the best one available by default."""
    if "device_map" in options:
        raise ConfigError("device_map is not supported for language models: use device.")
    lm = NuggetLM.from_pretrained(name, **options)
    lm.to(best_device(device))  # type: ignore[arg-type]
    return lm


AutoConfig.register(NuggetLMConfig.model_type, NuggetLMConfig)
AutoModel.register(NuggetLMConfig, NuggetLM)
