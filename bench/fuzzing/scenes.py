"""Scenes: commands with inputs that can be damaged, and what must hold afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from bench.fuzzing.world import RESUMED, World

Protection = Literal["", "any", "pages"]


@dataclass(frozen=True)
class Scene:
    """A command and its inputs; it writes only to names that start with `out`, and to folders changed in place."""

    command: str
    """Arguments, separated by spaces, with + for a space inside one; those that are examples of the world are its inputs."""
    more: tuple[str, ...] = ()
    """Further inputs, such as the model that an index names."""
    damage: tuple[str, ...] = ()
    """Patterns of the files to damage; all inputs by default."""
    protected: Protection = ""
    """How the damaged files are protected: not at all, as a whole, or the pages of a Parquet file."""
    result: tuple[str, ...] = ("out.parquet", "out.jsonl")
    """Patterns of the files that are compared between two runs, together with what is printed."""
    stdin: str = ""
    """Input that is read from standard input."""
    in_place: str = ""
    """Folder that the command changes."""
    kept: tuple[str, ...] = ()
    """Patterns of files and folders in it that must stay."""
    weight: int = 2
    """How often it is chosen."""
    before: str = ""
    """Command that may refuse the damage first, such as a check."""

    @property
    def arguments(self) -> list[str]:
        """Arguments of the command."""
        return [part.replace("+", " ") for part in self.command.split()]

    @property
    def name(self) -> str:
        """Name of the command, such as `index add`."""
        words = self.command.split()
        grouped = words[0] in ("evaluate", "lm", "data") or (words[0] == "index" and words[1] in INDEX)
        return " ".join(words[: 2 if grouped else 1])

    def inputs(self, world: World) -> list[str]:
        """Return the examples that it needs."""
        tops = {path.split("/")[0] for path in world.files}
        named = [part for part in self.command.split() if part in tops]
        return list(dict.fromkeys([*named, *self.more, *([self.stdin] if self.stdin else [])]))

    def damageable(self, world: World) -> list[list[str]]:
        """Return the files that can be damaged, grouped by input."""
        groups = [world.below(name) for name in self.inputs(world)]
        if self.damage:
            groups = [[path for path in group if self._is_damaged(path)] for group in groups]
        return [group for group in groups if group]

    def _is_damaged(self, path: str) -> bool:
        return any(fnmatchcase(path, p) for p in self.damage) and not fnmatchcase(path, LEFT_OUT)


# Without checksums, which only a compacted index has, the engine ends the process for some damage to its list of ids.
LEFT_OUT = "idx/*/mutable_id_tracker.mappings"
INDEX = ("add", "delete", "compact", "info", "check")
ENGINE = ("index.json", "documents", "engine-*")
TRAIN = "train recipe.toml -o out --set data.cache=out-cache"
FEW = "--documents 2"
MODEL = ("m/*.json", "m/*.safetensors", "c/*.json", "c/*.safetensors")
QUERY = "the+old+house+near+the+water"

SCENES = (
    # Texts.
    Scene("encode t.txt -o out.parquet --model m"),
    Scene("encode t.jsonl -o out.parquet --model m --with-text", weight=3),
    Scene("encode t.jsonl -o out.parquet --model m --skip-bad", damage=("t.*",)),
    Scene("encode t.parquet -o out.parquet --model e", damage=("t.*",), weight=4),
    Scene("encode t.parquet -o out.parquet --model e --skip-bad", damage=("t.*",), weight=3),
    Scene("encode t.jsonl.gz -o out.parquet --model e", damage=("t.*",)),
    Scene("encode t.txt.gz -o out.parquet --model e --resume", damage=("t.*",), weight=1),
    Scene("encode - -o out.parquet --model e", stdin="t.jsonl", damage=("t.*",)),
    Scene("encode shards -o out --model e", result=("out/*",), damage=("shards/*",)),
    Scene("encode t.txt -o out.parquet --model m --fidelity 0.5", damage=("t.*",), weight=1),
    Scene("highlight t.jsonl --model e", damage=("t.*",)),
    Scene("highlight t.parquet --model e --html out.html", damage=("t.*",), result=("out.html",)),
    # Model folders.
    Scene("encode t.txt -o out.parquet --model m", damage=MODEL, weight=8),
    Scene("encode t.txt -o out.parquet --model c", damage=MODEL, weight=8),
    Scene("reconstruct n.parquet --beams 1", more=("m",), damage=("m/*.json", "m/*.safetensors"), weight=4),
    Scene("highlight t.txt --model c", damage=MODEL, weight=3),
    Scene("serve --model m --port 0", damage=MODEL, weight=3),
    Scene("trim backbone -o out --texts t.txt", result=("out/model.safetensors",), weight=4),
    Scene("lm generate lm --prompt t.txt -n 3", weight=4),
    Scene("lm evaluate lm t.txt --history 1", weight=3),
    Scene("lm evaluate delta t.txt --history 1", more=("m",), damage=("delta/*",), weight=4),
    # Nuggets.
    Scene("reconstruct n.parquet --beams 1 -o out.jsonl", more=("m",), damage=("n.*",), weight=4),
    Scene("reconstruct n.parquet --beams 1 --against t.jsonl", more=("m",), damage=("n.*", "t.*"), weight=3),
    Scene("index n.parquet -o out --model m", damage=("n.*",), result=(), weight=3),
    Scene("index nuggets -o out --model e", damage=("nuggets/*",), result=(), weight=2),
    # Indexes.
    Scene("index t.jsonl -o out --model e", damage=("t.*",), result=(), weight=2),
    Scene("index t.parquet -o out --model e --skip-bad", damage=("t.*",), result=(), weight=2),
    Scene("index docs -o out --model e", damage=("docs/*",), result=(), weight=3),
    Scene("index docs -o out --model e --skip-bad", damage=("docs/*",), result=(), weight=2),
    Scene("index add idx t.jsonl --skip-bad", more=("e",), damage=("t.*",), in_place="idx", kept=ENGINE, weight=3),
    Scene("index add idx t.jsonl", more=("e",), damage=("idx/*",), in_place="idx", kept=ENGINE, weight=3),
    Scene("index t.jsonl -o idx --model e", damage=("idx/*",), in_place="idx", kept=ENGINE),
    Scene("index delete idx d1", more=("e",), damage=("idx/*",), in_place="idx", kept=ENGINE),
    Scene("index compact idx", more=("e",), damage=("idx/*",), in_place="idx", kept=ENGINE[:2], weight=3),
    Scene("index check idx", more=("e",), damage=("idx/*",), in_place="idx", kept=ENGINE, weight=2),
    Scene("index check packed", more=("e",), damage=("packed/*",), in_place="packed", kept=ENGINE, weight=2),
    Scene("index info idx", more=("e",), damage=("idx/*",), in_place="idx", kept=ENGINE, weight=3),
    Scene(f"search idx {QUERY} --json", more=("e",), damage=("idx/*",), in_place="idx", kept=ENGINE, weight=3),
    Scene("serve --index idx --port 0", more=("e",), damage=("idx/*",), in_place="idx", kept=ENGINE, weight=1),
    # Training, plans, results and tasks.
    Scene(TRAIN, more=("backbone", "train.jsonl", "dev.txt"), damage=("recipe.toml",), result=("out/best/*.safetensors",), weight=5),
    Scene(TRAIN, more=("backbone", "train.jsonl", "dev.txt"), damage=("train.jsonl", "dev.txt"), result=("out/best/*.safetensors",), weight=2),
    Scene(TRAIN, more=("backbone", "train.jsonl", "dev.txt"), damage=("backbone/*",), result=("out/best/*.safetensors",), weight=3),
    Scene(TRAIN + " --set data.train=['pairs.jsonl'] --set data.dev=['bitext.jsonl'] --set data.languages=['en','fr'] --set objective.name=translate",
          more=("backbone", "pairs.jsonl", "bitext.jsonl"), damage=("pairs.*", "bitext.*"), result=("out/best/*.safetensors",)),
    Scene(TRAIN + " --set data.train=['articles.jsonl'] --set objective.name=contrastive",
          more=("backbone", "articles.jsonl", "dev.txt"), damage=("articles.*",), result=("out/best/*.safetensors",), weight=1),
    Scene("reproduce plan.toml -o out --dry-run", weight=5),
    Scene("reproduce plan.toml -o finished", damage=("plan.toml", "finished/*.json", "finished/done/*"), in_place="finished", kept=("results", "done")),
    Scene("report results -o out.html", result=("out.html",), damage=("results/*.json", "results/*.md"), weight=8),
    Scene("data reranking articles.jsonl -o out", result=("out/*.jsonl",)),
    Scene("data paraphrase pairs.tsv -o out --max-words 8", result=("out/*.jsonl",)),
    Scene("data paraphrase pairs.jsonl -o out --max-words 8", result=("out/*.jsonl",), weight=1),
    Scene("evaluate similarity bm25 rerank -o out", result=("out/*.md",), weight=4),
    Scene("evaluate similarity bm25 e retrieve -o out", result=("out/*.md",), damage=("retrieve/*",), weight=3),
    Scene("evaluate similarity bm25 e rerank -o results/b --resume", more=("results",), damage=("results/b/similarity.json",), in_place="results", kept=("b",)),
    Scene(f"evaluate preferences m long.txt -o out {FEW} --max-tokens 64", result=("out/*.md",), weight=1),
    Scene(f"evaluate reconstruction m t.jsonl -o out {FEW} --max-tokens 64 --beams 1 --ratios 0.25", result=("out/*.md",), weight=1),
    Scene(f"evaluate probing m long.txt -o out {FEW} --max-tokens 64", result=("out/*.md",), weight=1),
    Scene(f"evaluate fidelity m t.parquet -o out {FEW} --max-tokens 64", result=("out/*.md",), weight=1),
    # Damage that checksums and fingerprints must notice.
    Scene("reconstruct n.parquet --beams 1", more=("m",), damage=("n.*",), protected="pages", weight=4),
    Scene("reconstruct n.parquet --beams 1", more=("m",), damage=("m/model.safetensors", "m/tokenizer.json"), protected="any", weight=4),
    Scene(f"search idx {QUERY} --json", more=("e",), damage=("e/model.safetensors", "e/tokenizer.json"),
          in_place="idx", kept=ENGINE, protected="any", weight=4),
    Scene("lm evaluate delta t.txt --history 1", more=("m",), damage=("m/model.safetensors", "m/tokenizer.json"), protected="any", weight=3),
    Scene(f"search packed {QUERY} --json", more=("e",), damage=("packed/engine-*",), in_place="packed", kept=ENGINE,
          protected="any", before="index check packed", weight=6),
    Scene(" ".join((*RESUMED, "-o run --resume --set optimizer.steps=3")), more=("run", "backbone", "train.jsonl", "dev.txt"),
          damage=("run/checkpoint-*", "run/cache/*"), in_place="run", kept=("recipe.toml", "metrics.jsonl", "best"),
          result=("run/best/model.safetensors",), protected="any", weight=4),
    Scene(" ".join((*RESUMED, "-o run --resume --set optimizer.steps=3")), more=("run", "backbone", "train.jsonl", "dev.txt"),
          damage=("run/recipe.toml", "run/metrics.jsonl"), in_place="run", result=("run/best/model.safetensors",)),
)  # fmt: skip
