"""MTEB: retrieval tasks from folders, and the metadata of nugget models.

mteb.evaluate(model_meta("search"), retrieval_task("tasks/cranfield"))
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from datasets import Dataset

from textnuggets import __version__
from textnuggets.errors import InputError, MissingExtraError
from textnuggets.evaluate.tasks import Task, read_task
from textnuggets.integrations.sentence_transformers import as_sentence_transformer
from textnuggets.model.fingerprint import fingerprint, lasting_name
from textnuggets.model.load import load_nugget_model
from textnuggets.model.modeling import NuggetModel
from textnuggets.shipped import shipped_name

try:
    from mteb import TaskMetadata
    from mteb.abstasks import AbsTaskRetrieval
    from mteb.models import ModelMeta, MultiVectorWrapper
    from mteb.models.model_meta import ScoringFunction
except ImportError as error:
    raise MissingExtraError("mteb>=2.26", "mteb", "an evaluation with MTEB") from error

SPLIT = "test"


class FolderRetrieval(AbsTaskRetrieval):
    """Retrieval task read from a folder; use `retrieval_task` to make one."""

    ignore_identical_ids = True  # a query has the id of the document that BEIR leaves out for it

    def __init__(self, task: Task, language: str) -> None:
        self.metadata = TaskMetadata(
            name=task.name.replace("/", "-"),
            description=f"Retrieval task from a folder, sha256 {task.sha256}.",
            dataset={"path": task.name, "revision": task.sha256},
            type="Retrieval",
            category="t2t",
            eval_langs=[language],
            eval_splits=[SPLIT],
            main_score="ndcg_at_10",
        )
        super().__init__()
        everything = len(task.documents)
        names = [
            f"query {number}" if len(candidates) == everything else _document(_left_out(candidates))
            for number, candidates in enumerate(task.candidates)
        ]
        self.dataset = {
            "default": {
                SPLIT: {
                    "corpus": Dataset.from_dict(
                        {"id": [_document(i) for i in range(everything)], "text": task.documents}
                    ),
                    "queries": Dataset.from_dict({"id": names, "text": task.queries}),
                    "relevant_docs": {
                        name: {_document(i): grade for i, grade in grades.items()}
                        for name, grades in zip(names, task.grades, strict=True)
                    },
                    "top_ranked": None,
                }
            }
        }
        self.data_loaded = True


def _document(number: int) -> str:
    return f"document {number}"


def _left_out(candidates: list[int]) -> int:
    """Return the one document that is not among the candidates of a query."""
    return next((i for i, number in enumerate(candidates) if i != number), len(candidates))


def retrieval_task(
    folder: str | Path,
    language: str = "eng-Latn",
    grades: Mapping[int, int] | None = None,
    lowercase: bool = False,
    split: str | None = None,
) -> FolderRetrieval:
    """Return a retrieval task of MTEB with the texts of a folder, as `textnuggets evaluate similarity` reads them.

    Args:
        folder: Folder with corpus.jsonl, queries.jsonl and qrels.tsv (or qrels/SPLIT.tsv, as in BEIR).
        language: Language and script of the texts.
        grades: Mapping from grades in the qrels to grades where higher is better; others are left out; default: as
            they are.
        lowercase: Convert all texts to lower case, for collections in capitals.
        split: Name of a file in `qrels/`, such as dev.
    """
    task = read_task(folder, grades=grades, lowercase=lowercase, split=split)
    if task.kind != "retrieval":
        raise InputError(f"{folder}: a {task.kind} task; MTEB takes a retrieval task (corpus.jsonl) here.")
    return FolderRetrieval(task, language)


def _owned(name: str) -> str:
    """Return the name of a model as owner/name, as MTEB wants it."""
    return name if name.count("/") == 1 and not Path(name).is_dir() else f"local/{Path(name).name}"


def model_meta(model: NuggetModel | str | Path | None = None, device: str | None = None) -> ModelMeta:
    """Return the metadata of a nugget model for `mteb.evaluate`, which loads the model as a `MultiVectorWrapper`.

    Args:
        model: Shipped model, folder, hub id or model; `search` by default.
        device: Torch device; the accelerator if there is one, else the CPU, by default.
    """
    loaded = model if isinstance(model, NuggetModel) else load_nugget_model(model, device)
    name = lasting_name(loaded.config.name_or_path or "unnamed" if isinstance(model, NuggetModel) else model)
    shipped = shipped_name(name)
    parameters = sum(parameter.numel() for parameter in loaded.parameters())
    embeddings: Any = loaded.get_input_embeddings()

    def load(_: str, revision: str | None = None, device: str | None = device, **options: Any) -> Any:  # noqa: ARG001
        return MultiVectorWrapper(as_sentence_transformer(loaded, device), **options)

    return ModelMeta(
        loader=load,
        name=f"textnuggets/{shipped}" if shipped else _owned(name),
        revision=fingerprint(loaded),
        release_date=None,
        languages=["eng-Latn"] if shipped else None,
        n_parameters=parameters,
        n_embedding_parameters=embeddings.weight.numel(),
        memory_usage_mb=round(sum(p.nbytes for p in loaded.parameters()) / 2**20),
        max_tokens=None,  # nothing is truncated
        embed_dim=loaded.dim,
        license="apache-2.0" if shipped == "search" else None,
        open_weights=True,
        public_training_code="https://github.com/textnuggets/textnuggets",
        public_training_data=None,
        framework=["PyTorch", "Transformers", "safetensors"],
        similarity_fn_name=ScoringFunction.MAX_SIM,
        use_instructions=False,
        training_datasets=None,
        adapted_from=loaded.config.backbone_name,
        model_type=["late-interaction"],
        experiment_kwargs={
            "ratio": loaded.config.ratio,
            "query_ratio": loaded.config.ratio_of_queries(),
            "textnuggets": __version__,
        },
    )
