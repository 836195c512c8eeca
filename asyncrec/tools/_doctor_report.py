"""`DoctorReport` and `Check` are the results of `asyncrec.tools.doctor`. `installed` returns the installed versions."""

from __future__ import annotations

import platform
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, entry_points, version
from typing import Any

from asyncrec import native
from asyncrec.tools._report_json import json_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The result of one check. ``ok`` is `None` if the result is neither good nor bad."""

    name: str
    ok: bool | None
    detail: str

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "ok": self.ok, "detail": self.detail}


@dataclass(slots=True, kw_only=True)
class DoctorReport:
    """The result of `doctor`.

    Attributes:
        installed: the versions of Python, asyncrec and every plugin, and whether the inner loops are in C.
    """

    path: str
    installed: dict[str, str] = field(default_factory=dict)
    checks: list[Check] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return all(check.ok is not False for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        return json_of(self, "path ok installed checks")


def installed() -> dict[str, str]:
    """Return the versions of Python, asyncrec and every plugin, and whether the inner loops are in C."""
    found = {"python": platform.python_version(), "asyncrec": _version("asyncrec"), "inner loops": _inner_loops()}
    for entry in entry_points(group="asyncrec"):
        if entry.dist is not None and entry.dist.name != "asyncrec":
            found[entry.dist.name] = entry.dist.version
    return found


def _inner_loops() -> str:
    if not native.FUNCTIONS:
        return "in Python, because no compiler was available when asyncrec was installed"
    return f"in C; CRC-32C by {native.CRC32C}"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed (a checkout on the path)"
