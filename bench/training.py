"""Training speed of a nugget model compared with the same backbone as a plain seq2seq model, both with Trainer."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from torch import nn
from torch.utils.data import DataLoader
from transformers import AutoModelForSeq2SeqLM, Trainer, TrainingArguments
from transformers.trainer_callback import PrinterCallback

from bench.measuring import compare, record
from textnuggets.data.packed import load_corpus, tokenizers_of
from textnuggets.train.build import build_nugget_model
from textnuggets.train.callbacks import Report
from textnuggets.train.objectives.decoding import Decoding
from textnuggets.train.recipe import Recipe
from textnuggets.train.run import training_arguments
from textnuggets.train.tables import DataRecipe, ModelRecipe, ObjectiveRecipe, OptimizerRecipe, ReportRecipe
from textnuggets.train.trainer import NuggetTrainer

STEPS, BATCH_TOKENS = 4, 2048


class PlainTrainer(Trainer):
    """Hugging Face's Trainer on precomputed batches."""

    batches: list[dict[str, Any]]

    def get_train_dataloader(self) -> DataLoader[Any]:
        return DataLoader(self.batches, batch_size=None)  # type: ignore[arg-type]


def plain_seq2seq(name: str, texts: str, source: str, rounds: int) -> None:
    """Compare STEPS updates on the same batches, with targets equal to sources.

    A nugget model freezes its lower layers. They are frozen on the other side in one comparison, which shows what is left without
    that advantage.
    """
    for classes, frozen in ((0, False), (0, True), (5500, False)):
        with tempfile.TemporaryDirectory() as folder:
            recipe = Recipe(
                model=ModelRecipe(backbone=name, ratio=0.1, scorer_layer=3),
                data=DataRecipe(train=[texts], dev=[texts], cache=f"{folder}/cache"),
                objective=ObjectiveRecipe(sampled_softmax=classes),
                optimizer=OptimizerRecipe(steps=STEPS, batch_tokens=BATCH_TOKENS),
                report=ReportRecipe(log_every=STEPS, documents=1, bleu_documents=0),
            )
            _compare(recipe, name, source, rounds, Path(folder), frozen)


def freeze_alike(bare: nn.Module, backbone: nn.Module) -> None:
    """Freeze the parameters of a bare model that are frozen in the backbone of a nugget model."""
    trained = {name: weight.requires_grad for name, weight in backbone.named_parameters()}
    for name, weight in bare.named_parameters():
        weight.requires_grad_(trained[name])


def _compare(recipe: Recipe, name: str, source: str, rounds: int, folder: Path, frozen: bool) -> None:
    model = build_nugget_model(recipe)
    corpus = load_corpus(recipe.data.train, recipe.packing, tokenizers_of(model, recipe.packing))
    arguments = training_arguments(recipe, folder)
    arguments.eval_strategy = arguments.save_strategy = "no"
    objective = Decoding(model, recipe, corpus, corpus)
    ours = NuggetTrainer(model, recipe, arguments, objective, Report(folder, STEPS))
    ours.remove_callback(PrinterCallback)
    batches = [
        {key: batch[key] for key in ("input_ids", "attention_mask", "labels")}
        for batch in ours.get_train_dataloader()
    ]
    plain_arguments = TrainingArguments(
        output_dir=str(folder / "plain"),
        max_steps=STEPS,
        optim="adamw_torch_fused",
        logging_strategy="no",
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        remove_unused_columns=False,
    )
    bare: Any = AutoModelForSeq2SeqLM.from_pretrained(name, trust_remote_code=False)
    if frozen:
        freeze_alike(bare, model.backbone)
    theirs = PlainTrainer(model=bare, args=plain_arguments, train_dataset=batches)
    theirs.batches = batches
    theirs.remove_callback(PrinterCallback)
    result = compare(ours.train, theirs.train, rounds)
    sampled = recipe.objective.sampled_softmax
    record(
        "train-vs-seq2seq" + ("-sampled" if sampled else "") + ("-frozen" if frozen else ""),
        "the training speed of the bare backbone with Hugging Face's Trainer on the same batches"
        + (", with the same parts frozen" if frozen else "")
        + (f", with a softmax over {sampled:,} sampled tokens on our side" if sampled else ""),
        ">= 1.0",
        {
            "backbone": Path(name).name,
            "source": source,
            "steps": STEPS,
            "batch_tokens": BATCH_TOKENS,
            "tokens": int(sum(batch["attention_mask"].sum() for batch in batches)),
            "ratio": recipe.model.ratio,
            "frozen": "embeddings and 3 of the encoder's layers" + (", on both sides" if frozen else ""),
            "sampled_softmax": sampled,
        },
        result,
    )
