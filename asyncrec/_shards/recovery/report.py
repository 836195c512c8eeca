"""What `asyncrec.recover` returns: a `Recovery`, and in it an `UnfinishedJob` for each that it left."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from asyncrec._shards.journal.header import JobHeader
from asyncrec._shards.journal.remedies import age_of
from asyncrec._shards.manifest.segment import ShardEntry


@dataclass(frozen=True, kw_only=True)
class UnfinishedJob:
    """A job that has not ended and that may still be running, which this machine cannot tell.

    Attributes:
        id: for ``dead=`` and ``abandon=``.
        kind: ``"rolling"``, ``"fixed"`` or ``"whole"`` (writers that replace a data set, and tools).
        host, pid, since: its machine and process, and when it began.
        age: seconds since then, by this machine's clock.
        spool: its records are in a spool on that machine, and must be recovered there.
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
        """Describe the job of a header."""
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
    """The result of `recover`: what it found and did.

    Attributes:
        shards: the shards that it committed.
        cut_bytes: the bytes after the last complete record of journals, which were being written when the writer died,
            and had not been acknowledged.
        damaged: journals that end in something other than a torn record. Their records up to there are committed; the
            files are kept under these names, for `asyncrec.tools.repair`.
        discarded: unfinished shards of jobs that were given up.
        abandoned: ids of the jobs that were given up.
        lost: ids of rolling writers to a store that died and had no spool, or whose machine is gone: what they had
            uploaded or flushed to the store is committed, and nothing is left of the rest.
        in_use: ids of jobs that are alive; they were left alone.
        unfinished: jobs that may still be running, which this machine cannot tell; they were left unchanged.
        targets: the data sets that now hold the shards, without credentials; of a spool, these are where its records
            went.
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
        """How many records the recovered shards have."""
        return sum(shard.records for shard in self.shards)

    @property
    def bytes(self) -> int:
        """How many bytes the recovered shards have, as stored."""
        return sum(shard.bytes for shard in self.shards)
