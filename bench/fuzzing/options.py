"""Options of a command with values that nobody expects; the options are those that the command line declares."""

from __future__ import annotations

from random import Random
from typing import Any

from typer.main import get_command

from textnuggets.cli import app
from textnuggets.train.recipe import Recipe

# Options that need a network, start other processes or bind ports, and `--out`, which is drawn from the inputs.
LEFT_OUT = {
    "--api-key",
    "--address",
    "--engine",
    "--host",
    "--port",
    "--cors",
    "--help",
    "--version",
    "--set",
    "--out",
}
INTEGERS = (
    "-1",
    "0",
    "1",
    "2",
    "7",
    "100000",
    "2147483648",
    "9223372036854775808",
    "1" + "0" * 400,
    "1.5",
    "x",
    "",
    "nan",
    "٣",
)
FLOATS = ("nan", "inf", "-inf", "0", "-1", "-0.0", "1e-320", "1e308", "2", "0.5", "1", "x", "", "0x1p-3")
TEXTS = (
    *(
        "",
        " ",
        "x",
        ".",
        "..",
        "/",
        "~",
        "*",
        "-",
        "--",
        "=",
        "a=b",
        "a=b=c",
        "=b",
        "year=1990",
        "of.n=1",
        "x" * 5000,
    ),
    *(
        "\udcff",
        "a\nb",
        "\u202e",
        "0,",
        ",",
        "1,nan",
        "0,-5",
        "1e9",
        "inf",
        "0.5,x",
        "en,fr",
        "en,fr,de",
        "xx",
        "maxsim",
    ),
    *(
        "t.txt",
        "m",
        "e",
        "lm",
        "backbone",
        "n.parquet",
        "idx",
        "nowhere",
        "nowhere/x",
        "a/b",
        "/dev/null",
        "m/config.json",
    ),
    *(
        "float16",
        "int8",
        "bm25",
        "@0.5",
        "e@nan",
        "e:ward@2",
        "=e",
        "e:sentences",
        "float64",
        "1=4,2=x",
        "1=1",
    ),
)
OUTPUTS = (
    "",
    ".",
    "..",
    "/dev/null",
    "nowhere/x",
    "x" * 300,
    "\udcff.parquet",
    "out.parquet/x",
    "here",
)
SETTINGS = (
    "nan",
    "inf",
    "-1",
    "0",
    "1",
    "2",
    "1e400",
    "true",
    "[]",
    "{}",
    '"x"',
    "x",
    "",
    "[nan]",
    "[1, 2]",
    "null",
    "1979-05-27",
    '["nowhere"]',
)
SLOW = {"--max-new-tokens": ("100000", "2147483648"), "--documents": ()}  # these ask for hours of work


def options_of(arguments: list[str]) -> list[Any]:
    """Return the declared options of the command that the arguments call."""
    command: Any = get_command(app)
    for word in arguments:
        if not hasattr(command, "commands"):
            break
        command = command.commands.get(word) or command.commands["build"]
    return [option for option in command.params if option.param_type_name == "option"]


def change_options(arguments: list[str], inputs: list[str], random: Random) -> tuple[list[str], str]:
    """Return the arguments with another value of an option, another output, or another setting of a recipe."""
    if arguments[0] in ("train", "reproduce") and random.random() < 0.7:
        added = ["--set", random_setting(random)]
        return [*arguments, *added], " ".join(added)
    if "-o" in arguments and random.random() < 0.3:
        place = arguments.index("-o") + 1
        value = random.choice((*OUTPUTS, *inputs, *(f"./{name}/../{name}" for name in inputs)))
        return [*arguments[:place], value, *arguments[place + 1 :]], f"-o {value!r}"
    options = [option for option in options_of(arguments) if not LEFT_OUT & set(option.opts)]
    if not options or random.random() < 0.1:
        added = [random.choice(("--unknown", "-z", "", "--", "--out", "extra", "--ratio"))]
        return [*arguments, *added], f"{added}"
    option = random.choice(options)
    name = max(option.opts, key=len)
    if option.is_flag:
        return [*arguments, name], name
    values = {int: INTEGERS, float: FLOATS}.get(option.type_descriptor.annotation, TEXTS)
    value = random.choice([value for value in values if value not in SLOW.get(name, ())])
    return [*arguments, name, value], f"{name} {value[:40]!r}"


def random_setting(random: Random) -> str:
    """Return a change of a recipe, `key=value`; long trainings are left out."""
    tables = {name: field.annotation for name, field in Recipe.model_fields.items()}
    table = random.choice(sorted(tables))
    inner = getattr(tables[table], "model_fields", None)
    key = (
        f"{table}.{random.choice(sorted(inner))}"
        if inner
        else f"{table}.fsdp"
        if table == "trainer"
        else table
    )
    key = random.choice((key, key, key, key + "x", key + ".x", table, "", "."))
    return f"{key}={random.choice(SETTINGS)}"
