"""Every numeric option of every command rejects text, numbers that are too small, and huge numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from cli_data import Run

from asyncrec.cli._installed import INSTALLED, function_of

ENORMOUS = str(10**23)
# Phrases from the messages of the libraries that parse the command line.
THEIRS = re.compile(r"Input should|unable to parse|valid integer|valid number")
# The arguments that each command needs besides the option, and its input if that is not a data set.
ARGUMENTS = {
    "diff": ["data/pages", "data/pages"],
    "filter": ["data/pages", "out/x", "--where", "label=1"],
    "from-csv": ["data/table.csv", "out"],
    "from-folder": ["data", "out"],
    "index": ["data/pages"],
}
TARGETS = {"compact": 0, "convert": 1, "copy": 1, "dedupe": 1, "merge": 1, "repair": 1, "reshard": 1}
# Options with an upper limit: a larger value is a usage error. Other options accept any large value at no cost.
LIMITED = {("cat", "--record"), ("reshard", "--num-shards"), ("sample", "--fraction")}


def numbers() -> Iterator[tuple[str, str, type]]:
    """Yield each command and option that takes a number, with its type."""
    for name in INSTALLED.all():
        found = INSTALLED.find(name)
        assert found is not None
        hints = get_type_hints(function_of(found), include_extras=True)
        for parameter in signature(function_of(found)).parameters.values():
            kinds = {int, float} & set(_kinds(hints[parameter.name]))
            if kinds:
                yield name, _flag(parameter, hints[parameter.name]), kinds.pop()


def _kinds(hint: Any) -> Iterator[Any]:
    yield hint
    for inner in get_args(hint):
        yield from _kinds(inner)


def _flag(parameter: Parameter, hint: Any) -> str:
    (option,) = [each for each in get_args(hint) if hasattr(each, "param_decls")]
    return option.param_decls[-1] if option.param_decls else "--" + parameter.name.replace("_", "-")


NUMBERS = [(command, flag, kind) for command, flag, kind in numbers() if command != "report"]  # report is from a plugin
IDS = [f"{command} {flag}" for command, flag, _ in NUMBERS]


@pytest.fixture(autouse=True)
def table(data: Path) -> None:
    (data / "table.csv").write_text("label,n\n" + "a,1\nb,2\n" * 10)


def line(command: str, flag: str, value: str) -> list[str]:
    paths = ARGUMENTS.get(command) or ["data/pages", *["out/x"] * TARGETS.get(command, 0)]
    once = ["--once"] if command == "watch" else []
    return [command, *paths, *once, flag, value]


def test_number_options_of_all_commands_are_found() -> None:
    assert {
        "head --limit",
        "cat --record",
        "reshard --seed",
        "sample --fraction",
        "watch --every",
        "verify --jobs",
    } <= set(IDS)


@pytest.mark.parametrize(("command", "flag", "kind"), NUMBERS, ids=IDS)
@pytest.mark.parametrize("value", ["x", "1.5.2", "", "nan"])
def test_option_rejects_text_instead_of_number(
    run: Run, data: Path, command: str, flag: str, kind: type, value: str
) -> None:
    result = run(*line(command, flag, value))
    assert result.code == 2, result
    assert f"{value!r} is not a {'whole ' if kind is int else ''}number" in result.err
    assert not THEIRS.search(result.err)


@pytest.mark.parametrize(("command", "flag", "kind"), NUMBERS, ids=IDS)
@pytest.mark.parametrize("value", ["-7", ENORMOUS])
def test_number_option_accepts_or_rejects_extreme_value(
    run: Run, data: Path, command: str, flag: str, kind: type, value: str
) -> None:
    result = run(*line(command, flag, value))
    assert result.code in (0, 1, 2, 3), result
    assert "a bug in" not in result.err
    assert not THEIRS.search(result.err)
    if (command, flag) in LIMITED and value == ENORMOUS:
        assert result.code == 2, result


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["head", "data/pages", "-n", "-3"], "'-n' / '--limit': -3 is too small; the minimum is 0"),
        (["sample", "data/pages", "--fraction", "1.5"], "'--fraction': 1.5 is too large; the maximum is 1"),
        (["head", "data/pages", "-n", "2.5"], "'2.5' is not a whole number"),
        (["cat", "data/pages", "--record", ENORMOUS], f"there is no record {ENORMOUS}; the data set has 30 records"),
        (["reshard", "data/pages", "out/x", "-n", ENORMOUS], "at most 1,048,576"),
        (["head", "data/pages", "-n", "9" * 5_000], "999... has too many digits for a number"),
    ],
)
def test_option_names_allowed_range_for_bad_number(run: Run, data: Path, argv: list[str], said: str) -> None:
    result = run(*argv)
    assert result.code == 2, result
    assert said in result.err
