"""`installed` says what there is to work with: versions, and what is in C."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, entry_points, version

from asyncrec import native


def installed() -> dict[str, str]:
    """Give the versions of Python, asyncrec and every plugin, and what is in C."""
    found = {"python": platform.python_version(), "asyncrec": _version("asyncrec"), "inner loops": _inner_loops()}
    for entry in entry_points(group="asyncrec"):
        if entry.dist is not None and entry.dist.name != "asyncrec":
            found[entry.dist.name] = entry.dist.version
    return found


def _inner_loops() -> str:
    if not native.FUNCTIONS:
        return "in Python, for no compiler was at hand when asyncrec was installed"
    return f"in C; CRC-32C by {native.CRC32C}"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed (a checkout on the path)"
