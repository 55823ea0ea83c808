"""Building, loading and saving nugget models, by the conventions of Hugging Face."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

from huggingface_hub import HfApi
from transformers import PreTrainedConfig, PreTrainedModel

from textnuggets.config import NuggetConfig
from textnuggets.errors import ConfigError
from textnuggets.io.disk import make_folder, sync_files
from textnuggets.model import quantized
from textnuggets.model.backbone import build_backbone, load_backbone
from textnuggets.model.card import model_card
from textnuggets.model.checkpoint import (
    check_checkpoint,
    check_complete,
    check_shards,
    explain_loading,
    explain_saved,
    hub_options,
    load_config,
    quiet_loading,
)
from textnuggets.model.families import find_family
from textnuggets.model.projection import read_projection
from textnuggets.model.selection import get_selector
from textnuggets.model.tokenization import check_tokenizer, fetch, load_tokenizer, punctuation_ids
from textnuggets.model.trial import check_finite, try_model
from textnuggets.shipped import locate


class SavedModel(PreTrainedModel):
    """Base class of NuggetModel that builds, loads and saves it."""

    config: NuggetConfig
    config_class = NuggetConfig
    adapter: Any
    _tokenizer: Any

    @classmethod
    def from_backbone(
        cls,
        backbone: str | Path | PreTrainedConfig,
        config: NuggetConfig | None = None,
        tokenizer: Any = None,
        **options: Any,
    ) -> Self:
        """Build an untrained nugget model on a pretrained backbone or a configuration.

        The projection of a late-interaction checkpoint, such as a ColBERT model, becomes W^V, which otherwise starts as the
        identity.

        Args:
            backbone: Hub id, folder, or transformers configuration (random weights).
            config: Nugget settings; the paper's by default.
            tokenizer: Fast tokenizer; required with a configuration, else loaded with the backbone by default.
            options: Arguments of transformers' `from_pretrained`, such as `dtype` or `attn_implementation`.
        """
        if not isinstance(config, NuggetConfig | None):
            raise ConfigError(f"config must be a NuggetConfig, got {type(config).__name__}.")
        config = deepcopy(config) if config else NuggetConfig()
        # Check everything possible before loading large files.
        get_selector(config.selector)
        projection = None
        if isinstance(backbone, PreTrainedConfig):
            loaded = build_backbone(backbone, **options)
        else:
            name = config.backbone_name = str(backbone)
            hub = hub_options(options)
            backbone_config = load_config(name, **hub)
            find_family(backbone_config)
            tokenizer = tokenizer or load_tokenizer(name, backbone_config.model_type, **hub)
            check_shards(name, hub.get("subfolder", ""))
            projection = read_projection(name, backbone_config, **hub)
            if projection is not None:
                if config.dim not in (None, len(projection)):
                    raise ConfigError(
                        f"dim is {config.dim}, but the projection of {name!r} has {len(projection)} dimensions: leave dim out."
                    )
                config.dim = len(projection)
            with explain_loading(name), quiet_loading():
                loaded = load_backbone(name, backbone_config, **options)
            check_finite(loaded, name)
        config.backbone = loaded.config
        if tokenizer is not None:
            config.punctuation_ids = punctuation_ids(check_tokenizer(tokenizer, "this backbone"))
        model: Any = cls(config, loaded)
        model._tokenizer = tokenizer
        model.measure_content()
        if projection is not None:
            model.value.weight.data.copy_(projection)
        for part in (model.scorer, model.feedback, model.gather, model.value):
            if part is not None:  # not the backbone: T5 keeps some weights in float32
                part.to(device=loaded.device, dtype=loaded.dtype)
        return model.eval()

    @classmethod
    def from_pretrained(cls, name: str | Path, *args: Any, **options: Any) -> Self:  # type: ignore[override]
        """Load a saved nugget model and its tokenizer, by shipped name, folder or hub id."""
        hub = hub_options(options)
        name = locate(name)
        with explain_saved(str(name)), quiet_loading():
            check_checkpoint(str(name), **hub)
            check_shards(str(name), hub.get("subfolder", ""))
            source: str | None = str(name)
            if (index := fetch(str(name), quantized.INDEX, **hub)) is not None:
                options["state_dict"] = quantized.read_compact(
                    index, lambda file: fetch(str(name), file, **hub)
                )
                options.setdefault("config", NuggetConfig.from_pretrained(str(name), **hub))
                source = None
            loaded: Any = super().from_pretrained(
                source, *args, use_safetensors=True, output_loading_info=True, **options
            )
            model, report = loaded
            check_complete(str(name), report["missing_keys"])
            check_finite(model, str(name))
            model._tokenizer = load_tokenizer(str(name), NuggetConfig.model_type, **hub)
            model.adapter.load_generation_config(str(name), **hub)
            try_model(model, str(name))
        model._freeze()
        model.config.name_or_path = str(name)
        return model

    def save_pretrained(self, path: str | Path, compact_weights: bool | int = False, **options: Any) -> None:  # type: ignore[override]
        """Write the configuration, weights, tokenizer and, if there is none yet, a model card.

        Args:
            path: Output folder.
            compact_weights: Whether to store weights as int8, in a quarter of the space (`textnuggets.model.quantized`), or
                the number of bits, from 4 to 8: fewer take as many bytes, but compress better.
            options: Arguments of transformers' `save_pretrained`.
        """
        bits = 8 if compact_weights is True else int(compact_weights)
        if bits and not 4 <= bits <= 8:
            raise ConfigError(f"compact_weights must be True, False or 4 to 8 bits, got {compact_weights!r}.")
        make_folder(Path(path))
        if bits:
            self.config.save_pretrained(str(path))
            quantized.write_compact(self.state_dict(), Path(path), bits)
        else:
            super().save_pretrained(str(path), **options)
        # Remove weights of the other format, which would be stale.
        for old in Path(path).glob("model*.safetensors*" if bits else "compact*"):
            old.unlink()
        if not options.get("is_main_process", True):  # only one process writes the small files
            return
        if self._tokenizer is not None:
            self._tokenizer.save_pretrained(str(path))
        self.adapter.save_generation_config(Path(path))
        card = Path(path) / "README.md"
        if not card.exists():
            card.write_text(model_card(self.config), encoding="utf-8")
        sync_files(Path(path))

    def push_to_hub(  # type: ignore[override]
        self,
        repo_id: str,
        commit_message: str | None = None,
        commit_description: str | None = None,
        private: bool | None = None,
        token: str | bool | None = None,
        revision: str | None = None,
        create_pr: bool = False,
        **options: Any,
    ) -> str:
        """Upload the files of `save_pretrained`, including the model card.

        Args:
            repo_id: Hub repository as owner/name; created if it does not exist.
            commit_message: Commit subject; "Upload nugget model" by default.
            commit_description: Commit body.
            private: Whether a new repository is private.
            token: Access token; the one saved at login by default.
            revision: Branch to commit to; created if it does not exist.
            create_pr: Whether to open a pull request instead of committing.
            options: Arguments of `save_pretrained`, such as `compact_weights` or `max_shard_size`.

        Returns:
            URL of the commit.
        """
        api = HfApi(token=token)
        repo_id = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
        if revision is not None and not create_pr:
            api.create_branch(repo_id, branch=revision, exist_ok=True)
        with TemporaryDirectory() as folder:
            self.save_pretrained(folder, **options)
            done = api.upload_folder(
                repo_id=repo_id,
                folder_path=folder,
                commit_message=commit_message or "Upload nugget model",
                commit_description=commit_description,
                revision=revision,
                create_pr=create_pr,
            )
        return str(done.commit_url)
