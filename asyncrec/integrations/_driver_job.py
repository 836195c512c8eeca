"""`open_driver_job`: the job of an engine's write, in its driver, which commits what tasks have made. No async."""

from __future__ import annotations

from asyncrec._shards.manifest.segment import ShardEntry
from asyncrec._shards.writing.joint_job import JobShare, JointJob, open_joint_job
from asyncrec.blocking._owner import Handle, as_context


class DriverJob(Handle[JointJob]):
    """The job, in the driver, without async."""

    @property
    def share(self) -> JobShare:
        return self._value.share

    @property
    def committed(self) -> tuple[ShardEntry, ...] | None:
        return self._value.committed

    def commit(self, entries: list[ShardEntry], records: int) -> None:
        async def commit() -> None:
            await self._value.commit(entries, records=records)

        self._owner.call_inside(commit)


open_driver_job = as_context(open_joint_job, DriverJob)
