"""Cases: one scene with one kind of damage, drawn from a seed and a number."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from bench.fuzzing.mutators import change_bytes, damage, rewrite
from bench.fuzzing.options import change_options
from bench.fuzzing.scenes import SCENES, Scene
from bench.fuzzing.world import GUESTS, Stored, World

STEPS = 20  # longer trainings are no damage


@dataclass
class Case:
    """A scene, its damage and the files to write before the command runs."""

    seed: int
    number: int
    scene: Scene
    arguments: list[str]
    note: str
    """What was changed."""
    files: dict[str, Stored]
    """Inputs by path, as they are when the command starts."""
    is_neutral: bool = False
    """Whether the change has no meaning, so that the result must stay the same."""
    guests: list[str] = field(default_factory=list)
    """Files of others in the folders that the command writes to."""
    old: str | None = None
    """An older output."""

    @property
    def summary(self) -> str:
        """The command and what was changed."""
        return f"{' '.join(self.arguments)[:300]} | {self.note}"


def draw(world: World, seed: int, number: int) -> Case:
    """Return a case; the same seed and number give the same case."""
    random = Random(f"{seed}/{number}")
    scene = random.choices(SCENES, [scene.weight for scene in SCENES])[0]
    files = {path: world.files[path] for name in scene.inputs(world) for path in world.below(name)}
    case = Case(seed, number, scene, scene.arguments, "", files)
    kind = random.random()
    if scene.protected:
        _damage_protected(case, world, random)
    elif kind < 0.2:
        named = [name for name in scene.inputs(world) if name != scene.stdin]  # it is read from a pipe
        case.arguments, case.note = change_options(scene.arguments, named, random)
    elif kind < 0.27 and _rewrite(case, world, random):
        case.is_neutral = True
    elif kind < 0.33:
        _damage_folder(case, world, random)
    else:
        _damage_files(case, world, random)
    _add_others(case, random)
    return case


def _pick(case: Case, world: World, random: Random) -> str:
    return random.choice(random.choice(case.scene.damageable(world)))


def _damage_files(case: Case, world: World, random: Random) -> None:
    notes = []
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        path = _pick(case, world, random)
        stored, note = _damaged(path, case.files[path], random)
        if is_affordable(path, stored):
            case.files[path] = stored
            notes.append(f"{path}: {note}")
    case.note = "; ".join(notes) or "nothing"


def _damaged(path: str, stored: Stored, random: Random) -> tuple[Stored, str]:
    if stored.is_sparse:
        return _damage_sparse(stored, random)
    content, note = damage(path, stored.blocks[0][1] if stored.blocks else b"", random)
    return Stored(len(content), [(0, content)]), note


def _damage_sparse(stored: Stored, random: Random) -> tuple[Stored, str]:
    """Flip bits of a block that is in use, or cut the file."""
    if not stored.blocks or random.random() < 0.15:
        size = random.randrange(stored.size)
        kept = [(place, block) for place, block in stored.blocks if place + len(block) <= size]
        return Stored(size, kept), f"cut at {size}"
    number = random.randrange(len(stored.blocks))
    place, block = stored.blocks[number]
    used = [i for i, byte in enumerate(block) if byte]
    spot = random.choice(used)
    changed = block[:spot] + bytes([block[spot] ^ (1 << random.randrange(8))]) + block[spot + 1 :]
    blocks = [*stored.blocks[:number], (place, changed), *stored.blocks[number + 1 :]]
    return Stored(stored.size, blocks), f"flip a bit at {place + spot}"


def _damage_folder(case: Case, world: World, random: Random) -> None:
    """Remove a file, or put another one in its place."""
    path = _pick(case, world, random)
    other = random.choice(sorted(case.files))
    if random.random() < 0.5:
        del case.files[path]
        case.note = f"{path}: removed"
    else:
        case.files[path] = case.files[other]
        case.note = f"{path}: content of {other}"


def _damage_protected(case: Case, world: World, random: Random) -> None:
    path = _pick(case, world, random)
    stored = case.files[path]
    if case.scene.protected == "pages":
        content = stored.blocks[0][1]
        end = (
            len(content) - 8 - int.from_bytes(content[-8:-4], "little")
        )  # the footer and its length come last
        place = random.randrange(4, end)
        changed = (
            content[:place] + bytes([content[place] ^ (1 << random.randrange(8))]) + content[place + 1 :]
        )
        case.files[path], case.note = Stored(len(changed), [(0, changed)]), f"{path}: flip a bit at {place}"
    elif stored.is_sparse:
        case.files[path], note = _damage_sparse(stored, random)
        case.note = f"{path}: {note}"
    else:
        content = stored.blocks[0][1] if stored.blocks else b""
        changed, note = (change_bytes if random.random() < 0.5 else lambda c, r: damage(path, c, r))(
            content, random
        )
        case.files[path], case.note = Stored(len(changed), [(0, changed)]), f"{path}: {note}"


def _rewrite(case: Case, world: World, random: Random) -> bool:
    """Write a file with the same meaning in other bytes; return False if it has no such form."""
    path = _pick(case, world, random)
    stored = case.files[path]
    has_checksum = path.startswith("packed/engine-")
    fits = not (has_checksum or stored.is_sparse) and bool(stored.blocks)
    found = rewrite(path, stored.blocks[0][1], random) if fits else None
    if found is None:
        return False
    content, note = found
    case.files[path], case.note = Stored(len(content), [(0, content)]), f"{path}: {note}"
    return True


def _add_others(case: Case, random: Random) -> None:
    """Put files of others into the folders that the command writes to, or an older output."""
    target = case.scene.in_place
    if not target and "-o" in case.arguments:
        target = case.arguments[case.arguments.index("-o") + 1]
        if target.startswith("out.") and "/" not in target:
            case.old = (
                target if random.random() < 0.3 and not case.is_neutral else None
            )  # --resume may refuse it
            return
        if target != "out" or case.is_neutral or case.scene.name == "trim":  # a folder in use may be refused
            return
    if target and random.random() < 0.3:
        case.guests = [f"{target}/{name}" for name in GUESTS]


def is_affordable(path: str, stored: Stored) -> bool:
    """Return whether a recipe asks for no long training."""
    if Path(path).suffix != ".toml":
        return True
    try:
        tables = tomllib.loads(stored.blocks[0][1].decode())
        optimizer = {"steps": 10_000, "accumulate": 1} | tables.get("optimizer", {})
        return "model" not in tables or all(
            abs(float(optimizer[key])) <= STEPS for key in ("steps", "accumulate")
        )
    except (ValueError, TypeError, AttributeError, RecursionError, OverflowError):
        return True
