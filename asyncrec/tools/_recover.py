"""`recover` is `asyncrec.recover` as a tool: its report has ``to_json()``, and an empty place is an error."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from asyncrec._shards.recovery import recover as recovery_
from asyncrec._shards.recovery.report import Recovery, UnfinishedJob
from asyncrec.storage._base import Storage
from asyncrec.storage._url import redact
from asyncrec.tools._selection import selected


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverReport:
    """What was recovered at a path; ``recovery`` is what `asyncrec.recover` returns."""

    path: str
    recovery: Recovery

    def to_json(self) -> dict[str, Any]:
        found = self.recovery
        return {
            "path": self.path,
            "targets": [redact(target) for target in found.targets],
            "records": found.records,
            "bytes": found.bytes,
            "shards": [shard.to_json() for shard in found.shards],
            "cut_bytes": found.cut_bytes,
            "damaged": list(found.damaged),
            "discarded": list(found.discarded),
            "abandoned": list(found.abandoned),
            "lost": list(found.lost),
            "in_use": list(found.in_use),
            "unfinished": [_job_to_json(job) for job in found.unfinished],
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
    """Publish what writers left behind when they died, as `asyncrec.recover` does, whose arguments these are.

    Raises:
        ObjectNotFoundError: there is nothing at all at the path.
    """
    options = None if storage_options is None else dict(storage_options)
    found = await recovery_.recover(path, to=to, abandon=abandon, dead=dead, storage=storage, storage_options=options)
    if found == Recovery():
        async with selected(path, storage=storage, storage_options=options):  # raises where nothing is there
            pass
    return RecoverReport(path=redact(os.fspath(path)), recovery=found)


def _job_to_json(job: UnfinishedJob) -> dict[str, Any]:
    return {
        "id": job.id,
        "kind": job.kind,
        "host": job.host,
        "pid": job.pid,
        "since": None if job.since is None else job.since.isoformat(),
        "age": round(job.age, 3),
        "spool": job.spool,
    }
