"""Checks that run beside an original: the same function on either module, and what comes of it compared.

A check is a function of the module and of a path that is its own. Equal are values that are equal, and errors of which
ours is caught by an ``except`` for the original's. What differs is named in ``differences/<system>.toml``. Of an
original that has no package to install, that names tests of our own instead of checks.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "differences"

Check = Callable[[Any, Path], Any]


def named(system: str) -> set[str]:
    """The checks that are said to differ."""
    data = tomllib.loads((FOLDER / f"{system}.toml").read_text("utf-8"))
    return {check for kind in ("better", "different") for each in data[kind] for check in each.get("checks", [])}


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


PAGES = Path(__file__).parents[2] / "docs" / "coming-from"
_SECTIONS = {"better": "## What is better", "different": "## What is different"}


def page_of(system: str) -> str:
    """The page of a system as it is, with its two sections of differences made anew from the list."""
    data = tomllib.loads((FOLDER / f"{system}.toml").read_text("utf-8"))
    page = (PAGES / f"{system}.md").read_text("utf-8").split("\n## What is better\n")[0]
    for kind, title in _SECTIONS.items():
        items = ["- " + "\n  ".join(each["text"].strip().split("\n")) for each in data[kind]]
        page += f"\n{title}\n\n" + "\n".join(items) + "\n"
    return page


if __name__ == "__main__":  # write the pages anew
    for file in FOLDER.glob("*.toml"):
        (PAGES / f"{file.stem}.md").write_text(page_of(file.stem), "utf-8")
