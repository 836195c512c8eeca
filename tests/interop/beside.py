"""Checks that run beside an original: the same function on either module, and what comes of it compared.

A check is a function of the module and of a path that is its own. Equal are values that are equal, and errors of which
ours is caught by an ``except`` for the original's. What differs is named in ``differences/<system>.toml``, with the
number of the checks. Of an original that has no package to install, that names tests of our own instead of checks.
``python tests/interop/beside.py`` writes the pages, and the numbers in the promises, anew from these lists.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "differences"

Check = Callable[[Any, Path], Any]


def listed(system: str) -> dict[str, Any]:
    return tomllib.loads((FOLDER / f"{system}.toml").read_text("utf-8"))


def differences(system: str) -> list[dict[str, Any]]:
    data = listed(system)
    return [*data["better"], *data["different"]]


def named(system: str) -> set[str]:
    """The checks that are said to differ."""
    return {check for each in differences(system) for check in each.get("checks", [])}


def outcome(check: Check, module: Any, path: Path) -> Any:
    path.mkdir(parents=True)
    try:
        return check(module, path)
    except Exception as error:
        return error


def same(original: Any, ours: Any) -> bool:
    if isinstance(original, Exception):
        return isinstance(ours, Exception) and (
            isinstance(ours, type(original)) or type(ours).__name__ == type(original).__name__
        )
    return not isinstance(ours, Exception) and bool(original == ours)


DOCS = Path(__file__).parents[2] / "docs"
PAGES = DOCS / "coming-from"
PROMISES = DOCS / "promises-reading.md"
SYSTEMS = sorted(file.stem for file in FOLDER.glob("*.toml"))
_SECTIONS = {"better": "## What is better", "different": "## What is different"}
_NUMBERS = re.compile(r"[\d,]+ differences in all, and [\d,]+ of [\d,]+ checks")


def page_of(system: str) -> str:
    """The page of a system as it is, with its two sections of differences made anew from the list."""
    page = (PAGES / f"{system}.md").read_text("utf-8").split("\n## What is better\n")[0]
    for kind, title in _SECTIONS.items():
        items = ["- " + "\n  ".join(each["text"].strip().split("\n")) for each in listed(system)[kind]]
        page += f"\n{title}\n\n" + "\n".join(items) + "\n"
    return page


def promises() -> str:
    """The page of promises as it is, with its numbers of differences made anew from the lists."""
    total = sum(len(differences(system)) for system in SYSTEMS)
    checks = sum(len(named(system)) for system in SYSTEMS)
    compared = sum(listed(system).get("compared", 0) for system in SYSTEMS)
    numbers = f"{total} differences in all, and {checks} of {compared:,} checks"
    text, times = _NUMBERS.subn(numbers, PROMISES.read_text("utf-8"))
    assert times == 1
    return text


if __name__ == "__main__":  # write the pages anew
    for system in SYSTEMS:
        (PAGES / f"{system}.md").write_text(page_of(system), "utf-8")
    PROMISES.write_text(promises(), "utf-8")
