"""CausalNuggetLM: a decoder-only language model that keeps nuggets of the distant past in its cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from safetensors import safe_open
from safetensors.torch import save_file
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from textnuggets.causal.base import base_fingerprint, load_base, same_base
from textnuggets.causal.config import CausalConfig
from textnuggets.causal.reader import NuggetReader
from textnuggets.causal.stream import CausalStream, Text
from textnuggets.errors import CheckpointError
from textnuggets.io.disk import make_folder, sync_files
from textnuggets.io.files import replacing
from textnuggets.model.checkpoint import best_device, explain_loading, explain_saved, hub_options
from textnuggets.model.tokenization import fetch

WEIGHTS = "model.safetensors"


class CausalNuggetLM(NuggetReader):
    """A language model that reads any length of text in a small cache.

    It consists of a base model, which stays as it is, and an adapter of a few megabytes: the scorer, two type embeddings
    and LoRA weights.
    """

    def __init__(
        self, config: CausalConfig, base: PreTrainedModel, tokenizer: PreTrainedTokenizerFast
    ) -> None:
        super().__init__(config, base)
        self.tokenizer = tokenizer

    @classmethod
    def from_base(cls, name: str | Path, config: CausalConfig | None = None, **options: Any) -> Self:
        """Create an untrained adapter for a base model.

        Args:
            name: Hub id or folder of a causal language model of a supported family.
            config: Settings; the defaults if None.
            options: Arguments of transformers' `from_pretrained` for the base, such as `dtype`.
        """
        base, tokenizer = load_base(str(name), **options)
        config = CausalConfig() if config is None else config
        config.base, config.base_weights = same_base(str(name)), base_fingerprint(base)
        return cls(config, base, tokenizer).eval()

    @classmethod
    def from_pretrained(  # type: ignore[override]
        cls, name: str | Path, base: str | Path | None = None, **options: Any
    ) -> Self:
        """Load an adapter, and the base model it was trained for.

        Args:
            name: Folder or hub id of the adapter.
            base: Folder or hub id of the base model; by default the one that the adapter names.
            options: Arguments of transformers' `from_pretrained` for the base, such as `dtype`, or for downloading the
                adapter, such as `revision`.
        """
        name, hub = str(name), hub_options(options)
        with explain_saved(name):
            settings, _ = CausalConfig.get_config_dict(name, **hub)
            if (kind := settings.get("model_type")) != CausalConfig.model_type:
                raise CheckpointError(
                    f"{name!r} is a {kind!r} model, not an adapter of a language model with nuggets."
                )
            config = CausalConfig(**settings)
            weights = fetch(name, WEIGHTS, **hub)
            if weights is None:
                raise CheckpointError(f"{name!r} is incomplete: {WEIGHTS} is missing.")
            where = str(base or config.base or "")
            if not where:
                raise CheckpointError(f"{name!r} names no base model: give base=.")
        rest = {key: value for key, value in options.items() if key not in hub}
        try:
            model, tokenizer = load_base(where, **rest)
        except CheckpointError as error:
            raise CheckpointError(
                f"{name!r} needs the base {config.base!r}: {error} Give its folder as base=."
            ) from error
        found = base_fingerprint(model)
        if found != config.base_weights:
            raise CheckpointError(
                f"{name!r} needs the base {config.base!r} with the fingerprint {config.base_weights}, but {where!r} "
                f"has {found}."
            )
        lm = cls(config, model, tokenizer)
        with explain_saved(name):
            lm.load_adapter_weights(weights)
        return lm.eval()

    def load_adapter_weights(self, file: Path) -> None:
        """Read the weights of the adapter; raise CheckpointError if some are missing, unknown or not finite."""
        own = self.adapter_weights()
        with safe_open(file, framework="pt") as stored:
            names = set(stored.keys())
            if wrong := sorted(names ^ own.keys()):
                lacks = "lacks" if wrong[0] in own else "has unknown"
                raise CheckpointError(f"{str(file)!r} {lacks} weights: {', '.join(wrong[:3])}.")
            for name in names:
                value = stored.get_tensor(name)
                if value.shape != own[name].shape or not value.isfinite().all():
                    raise CheckpointError(
                        f"{str(file)!r}: {name} is damaged or has the wrong shape {tuple(value.shape)}."
                    )
                own[name].data.copy_(value)

    # ---------------------------------------------------------------- text

    def open(self, text: Text = "", ratio: float | None = None) -> CausalStream:
        """Return a stream: a growing text whose past is compressed.

        Args:
            text: Beginning of the text: a string, token ids, or messages of a chat.
            ratio: Compression ratio; the model's by default.
        """
        stream = CausalStream(self, self.tokenizer, ratio)
        stream.append(text)
        return stream

    def load_stream(self, path: str | Path) -> CausalStream:
        """Return a saved stream."""
        return CausalStream.load(self, self.tokenizer, path)

    def generate(
        self, text: Text, max_new_tokens: int = 200, ratio: float | None = None, **options: Any
    ) -> str:
        """Return a continuation of a text, or the answer to messages of a chat; greedy by default.

        Args:
            text: Text of any length: a string, token ids, or messages of a chat.
            max_new_tokens: Maximum number of tokens to generate.
            ratio: Compression ratio; the model's by default.
            options: Options of transformers' `generate`, such as `do_sample`, `top_p` or `num_beams`.
        """
        return self.open(text, ratio).generate(max_new_tokens, **options)

    def save_pretrained(self, path: str | Path, **options: Any) -> None:  # type: ignore[override]
        """Write `config.json` and the weights of the adapter; the base is named, not copied."""
        if not options.get("is_main_process", True):
            return
        folder = Path(path)
        make_folder(folder)
        self.config.save_pretrained(str(folder))
        tensors = {name: value.detach().cpu().contiguous() for name, value in self.adapter_weights().items()}
        with replacing(folder / WEIGHTS) as temporary:
            save_file(tensors, temporary, {"format": "pt"})
        sync_files(folder)


def load_causal_model(name: str | Path, device: str | None = None, **options: Any) -> CausalNuggetLM:
    """Load an adapter and its base onto a device; the best one available by default."""
    lm = CausalNuggetLM.from_pretrained(name, **options)
    lm.to(best_device(device))  # type: ignore[arg-type]
    return lm


def is_causal_model(name: str) -> bool:
    """Return whether a folder or hub id is an adapter of a causal language model."""
    with explain_loading(name):
        settings, _ = CausalConfig.get_config_dict(name)
        return bool(settings.get("model_type") == CausalConfig.model_type)
