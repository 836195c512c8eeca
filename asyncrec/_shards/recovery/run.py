"""`RecoveryRun` ends one job after another, for one call of `asyncrec.recover` or on behalf of a writer."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Literal

from asyncrec._shards.journal.header import JobHeader, header_path
from asyncrec._shards.journal.home import home_of
from asyncrec._shards.ownership.census import FoundJob
from asyncrec._shards.ownership.end_job import end_job
from asyncrec._shards.ownership.verdict import Ending, Verdict
from asyncrec._shards.recovery.report import Recovery, UnfinishedJob
from asyncrec.errors import ArgumentValueError, AsyncRecError, ConflictError, ObjectNotFoundError, StorageError
from asyncrec.storage._base import Storage


class RecoveryRun:
    """The accumulated results and errors of one call.

    Attributes:
        silent: ids of writers that are considered dead because they have not changed anything in the store for too
            long.
        left: jobs whose shards must appear together. Only a call with ``finishes="all"`` completes them.
    """

    def __init__(
        self, abandon: Collection[str] = (), dead: Collection[str] = (), *, finishes: Literal["rolling", "all"] = "all"
    ) -> None:
        """``finishes`` has the same meaning as for `Verdict`.

        Raises:
            ArgumentValueError: an id is in both ``abandon`` and ``dead``.
        """
        self.left: list[JobHeader] = []
        self.silent: set[str] = set()
        self._finishes = finishes
        self._abandon = {abandon} if isinstance(abandon, str) else set(abandon)
        self._dead = {dead} if isinstance(dead, str) else set(dead)
        if both := self._abandon & self._dead:
            raise ArgumentValueError(f"the job {min(both)} is in both abandon and dead; pass it in only one of them")
        self._done = Ending()
        self._lost: list[str] = []
        self._in_use: list[str] = []
        self._unfinished: list[UnfinishedJob] = []
        self._errors: list[Exception] = []

    def refuse_unknown(self, path: str, jobs: Iterable[FoundJob]) -> None:
        """Raise an error unless every id in ``abandon`` and ``dead`` belongs to one of these jobs.

        Raises:
            ObjectNotFoundError: an id does not belong to any of them.
        """
        if missing := (self._abandon | self._dead).difference(job.header.writer for job in jobs):
            raise ObjectNotFoundError(f"{path}: there is no unfinished job with the id {', '.join(sorted(missing))}")

    @property
    def records(self) -> int:
        """The number of records that have been recovered."""
        return sum(shard.records for shard in self._done.shards)

    async def end(self, job: FoundJob, folder: Storage) -> bool:
        """End one job on the data set in ``folder``. Return false if there was an error, which `outcome` will raise."""
        header = job.header
        try:
            await self._end(job, folder)
        except (AsyncRecError, OSError, ValueError) as error:
            error.add_note(
                f"while recovering the writer {header.writer} of {header.url}; the other writers were recovered "
                "regardless"
            )
            self._errors.append(error)
            return False
        return True

    async def _end(self, job: FoundJob, folder: Storage) -> None:
        header, writer = job.header, job.header.writer
        home, own = job.home.folder, home_of(folder).folder
        if header.spool and home is not None and own is not None and home.folder == own.folder:
            # Complete shards in that folder would be mistaken for shards waiting to be uploaded, and would be removed.
            path = header_path(home, header.name, writer)
            raise StorageError(f"{path}: this file declares the data set's own folder to be a spool; remove the file")
        dead = writer in self._dead | self.silent
        verdict = Verdict(dead=dead, abandon=writer in self._abandon, finishes=self._finishes)
        answer = await end_job(folder, job, verdict, ending=self._done)
        if answer == "alive":
            if writer in self._abandon | self._dead:
                raise ConflictError(
                    f"the writer {writer} (process {header.pid} on {header.host}) is still running; stop it first"
                )
            self._in_use.append(writer)
        elif answer == "promised" and not job.marked:
            self.left.append(header)
        elif answer in ("unknown", "promised"):
            self._unfinished.append(UnfinishedJob.of(header))
        elif job.marked and (answer == "finished" or (answer == "given up" and verdict.dead)):
            self._lost.append(writer)

    def outcome(self) -> Recovery:
        """Return the results, or raise the first error."""
        done = self._done
        recovery = Recovery(
            shards=tuple(done.shards),
            cut_bytes=done.cut_bytes,
            damaged=tuple(done.damaged),
            discarded=tuple(done.discarded),
            abandoned=tuple(done.abandoned),
            lost=tuple(self._lost),
            in_use=tuple(self._in_use),
            unfinished=tuple(self._unfinished),
            targets=tuple(done.targets),
        )
        if self._errors:
            first, *others = self._errors
            for other in others:
                first.add_note(f"and: {other}")
            if recovery.shards:
                first.add_note(f"{recovery.records:,} records of other writers were recovered")
            raise first
        return recovery
