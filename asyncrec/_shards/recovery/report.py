"""The result of `asyncrec.recover`: a `Recovery` with an `UnfinishedJob` for each job that it left unfinished."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from asyncrec._shards.journal.header import JobHeader
from asyncrec._shards.journal.remedies import age_of
from asyncrec._shards.manifest.segment import ShardEntry


@dataclass(frozen=True, kw_only=True)
class UnfinishedJob:
    """A job that has not ended and may still be running, which this machine cannot determine.

    Attributes:
        id: the id to pass as ``dead=`` or ``abandon=``.
        kind: ``"rolling"``, ``"fixed"`` or ``"whole"`` (writers that replace a data set, and tools).
        host, pid, since: its machine and process, and its start time.
        age: the seconds since its start, by this machine's clock.
        spool: whether its records are in a spool on that machine, where they must be recovered.
    """

    id: str
    kind: str
    host: str
    pid: int
    since: datetime | None
    age: float
    spool: bool

    @classmethod
    def of(cls, header: JobHeader) -> UnfinishedJob:
        """Describe the job with this header."""
        return cls(
            id=header.writer,
            kind=header.kind,
            host=header.host,
            pid=header.pid,
            since=datetime.fromisoformat(header.since) if header.since else None,
            age=age_of(header),
            spool=header.spool,
        )


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """The results of `recover`.

    Attributes:
        shards: the shards that it committed.
        cut_bytes: the number of bytes after the last complete records of journals. They were being written when the
            writers died, and had not been acknowledged.
        damaged: journals that end in damage rather than a torn record. Their records before the damage are committed.
            The files are kept under these names, for `asyncrec.tools.repair`.
        discarded: unfinished shards of the abandoned jobs.
        abandoned: ids of the jobs that were abandoned.
        lost: ids of rolling writers to a store that died and had no spool, or whose machine is gone. The records that
            they had uploaded or flushed to the store are committed, and all others are lost.
        in_use: ids of jobs that are alive. They were left unchanged.
        unfinished: jobs that may still be running, which this machine cannot determine. They were left unchanged.
        targets: the data sets that now hold the shards, without credentials. For a spool, these are the data sets to
            which its records were uploaded.
    """

    shards: tuple[ShardEntry, ...] = ()
    cut_bytes: int = 0
    damaged: tuple[str, ...] = ()
    discarded: tuple[str, ...] = ()
    abandoned: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    in_use: tuple[str, ...] = ()
    unfinished: tuple[UnfinishedJob, ...] = ()
    targets: tuple[str, ...] = ()

    @property
    def records(self) -> int:
        """The number of records in the recovered shards."""
        return sum(shard.records for shard in self.shards)

    @property
    def bytes(self) -> int:
        """The number of bytes in the recovered shards, as stored."""
        return sum(shard.bytes for shard in self.shards)
