"""Checks that call the same function with the original module and with ours, and compare the results.

A check is a function of the module and of its own path. Results are equal if the values are equal, or if an
``except`` for the original's error would also catch ours. Known differences are listed in
``differences/<system>.toml``, with the number of checks. For an original that cannot be installed as a package, that
file lists tests of our own instead of checks.

Run ``python tests/interop/beside.py`` to regenerate the pages, and the numbers in the promises, from these lists.
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
    """Return the checks that are listed as differing."""
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
    """Return a system's page with its two sections of differences regenerated from the list."""
    page = (PAGES / f"{system}.md").read_text("utf-8").split("\n## What is better\n")[0]
    for kind, title in _SECTIONS.items():
        items = ["- " + "\n  ".join(each["text"].strip().split("\n")) for each in listed(system)[kind]]
        page += f"\n{title}\n\n" + "\n".join(items) + "\n"
    return page


def promises() -> str:
    """Return the page of promises with the numbers of differences regenerated from the lists."""
    total = sum(len(differences(system)) for system in SYSTEMS)
    checks = sum(len(named(system)) for system in SYSTEMS)
    compared = sum(listed(system).get("compared", 0) for system in SYSTEMS)
    numbers = f"{total} differences in all, and {checks} of {compared:,} checks"
    text, times = _NUMBERS.subn(numbers, PROMISES.read_text("utf-8"))
    assert times == 1
    return text


if __name__ == "__main__":  # regenerate the pages
    for system in SYSTEMS:
        (PAGES / f"{system}.md").write_text(page_of(system), "utf-8")
    PROMISES.write_text(promises(), "utf-8")
