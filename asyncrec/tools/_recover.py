"""`recover` is `asyncrec.recover` as a tool, whose report has ``to_json()``."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from asyncrec._shards.recovery import recover as recovery_
from asyncrec._shards.recovery.report import Recovery
from asyncrec.storage._base import Storage
from asyncrec.storage._url import redact
from asyncrec.tools._report_json import json_of


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverReport:
    """The result of `recover`. ``recovery`` is the result of `asyncrec.recover`."""

    path: str
    recovery: Recovery

    def to_json(self) -> dict[str, Any]:
        found = self.recovery
        return {
            "path": self.path,
            "targets": [redact(target) for target in found.targets],
            **json_of(found, "records bytes shards cut_bytes damaged discarded abandoned lost in_use"),
            "unfinished": [json_of(job, "id kind host pid since age spool") for job in found.unfinished],
        }


async def recover(
    path: str | os.PathLike[str],
    *,
    to: str | os.PathLike[str] | None = None,
    abandon: Collection[str] = (),
    dead: Collection[str] = (),
    storage: Storage | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> RecoverReport:
    """Commit the records of dead writers, as `asyncrec.recover` does, with the same arguments and errors."""
    options = None if storage_options is None else dict(storage_options)
    found = await recovery_.recover(path, to=to, abandon=abandon, dead=dead, storage=storage, storage_options=options)
    return RecoverReport(path=redact(os.fspath(path)), recovery=found)
