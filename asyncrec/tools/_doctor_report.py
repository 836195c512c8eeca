"""`DoctorReport` and `Check`: what `asyncrec.tools.doctor` found out about a store."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was tried. ``ok`` is `None` for what is reported and is neither good nor bad."""

    name: str
    ok: bool | None
    detail: str

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "ok": self.ok, "detail": self.detail}


@dataclass(slots=True, kw_only=True)
class DoctorReport:
    """What `doctor` found. ``installed`` has the versions of Python, asyncrec and every plugin, and what is in C."""

    path: str
    installed: dict[str, str] = field(default_factory=dict)
    checks: list[Check] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return all(check.ok is not False for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "ok": self.ok,
            "installed": self.installed,
            "checks": [check.to_json() for check in self.checks],
        }
