"""A job that a process of its own keeps, for engines that call the driver's steps in one short-lived process each.

`keep_job` starts that process; whoever has the `KeptJob` it returns, in whatever process of this machine, ends the job.
A joint job lives with the process that opened it: its lock says so. Here that process ends with the job, or with the
process that was given as the ``parent``: then as if it were killed too, and the next run of the job's id, or
`asyncrec.recover`, finds it dead.
"""

from __future__ import annotations

import os
import secrets
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener, Pipe
from typing import Any

from asyncrec._shards.manifest.segment import ShardEntry
from asyncrec._shards.writing.joint_job import JobShare, JointJob, open_joint_job
from asyncrec.blocking._owner import Handle, as_context
from asyncrec.errors import StorageError, UnsettledError
from asyncrec.storage._url import redact

_LOOK_SECONDS = 0.5  # where nothing tells that the parent has ended


@dataclass(frozen=True, kw_only=True)
class KeptJob:
    """A job that another process of this machine keeps. It can be pickled.

    Attributes:
        share: for tasks.
        repeated: an earlier run of its id has committed: there is nothing to be done.
    """

    share: JobShare
    repeated: bool
    address: str = field(repr=False)
    key: bytes = field(repr=False)

    def commit(self, entries: Sequence[ShardEntry], records: int) -> None:
        """Make these shards part of the data set, in one step, and end the job; raises as `JointJob.commit`."""
        if not self.repeated:
            self._ask(("commit", list(entries), records))

    def give_up(self) -> None:
        """End the job without a commit. Where it was committed, or nobody knows, nothing is deleted."""
        if not self.repeated:
            self._ask(("give up",))

    def connected(self) -> Connection[Any, Any]:
        """A connection to the process that keeps the job, which ends with that process.

        Raises:
            StorageError: it has ended.
        """
        try:
            return Client(self.address, authkey=self.key)
        except (OSError, EOFError, AuthenticationError) as error:
            raise StorageError(
                f"{self._path}: the process that kept the job {self.share.writer} has ended, and with it the job: what "
                "is not committed never will be; run it again"
            ) from error

    def _ask(self, question: tuple[Any, ...]) -> None:
        with self.connected() as connection:
            try:
                connection.send(question)
                answer = connection.recv()
            except (OSError, EOFError) as error:
                raise UnsettledError(
                    f"{self._path}: the process that kept the job {self.share.writer} died while it was asked to "
                    f"{question[0]}: nobody knows whether it is committed; run it again with the same job_id, which "
                    "finds out"
                ) from error
        if answer is not None:
            raise answer

    @property
    def _path(self) -> str:
        return redact(self.share.path)


def keep_job(path: str, *, parent: int, **options: Any) -> KeptJob:
    """Begin a job that a process of its own keeps, or find that it was done.

    Args:
        path: a folder and the data set's name in it.
        parent: the number of the process with which the job dies.
        options: those of `open_joint_job`, which also says what is raised.
    """
    ours, theirs = Pipe()
    with ours:
        with theirs:
            keeper = subprocess.Popen(
                # -P: the current folder may be anybody's, and is not where modules are looked for.
                [sys.executable, "-P", "-c", f"from {__name__} import keep; keep({theirs.fileno()})"],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # the signals of a group that ends are not meant for it
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        # Who has ended is waited for, or it stays in the list of processes for as long as this one runs.
        threading.Thread(target=keeper.wait, daemon=True).start()
        try:
            ours.send((path, parent, options))
            answer = ours.recv()
        except (OSError, EOFError) as error:
            raise StorageError(
                f"{redact(path)}: the process that was to keep the job ended as it began; its output says why"
            ) from error
    if isinstance(answer, BaseException):
        raise answer
    assert isinstance(answer, KeptJob), "that, or what went wrong"
    return answer


def keep(descriptor: int) -> None:
    """What the process does, which was started with one end of a pipe."""
    opener: Connection[Any, Any] = Connection(descriptor)
    path, parent, options = opener.recv()
    folder = _socket_folder()
    threading.Thread(target=_end_with, args=(parent, folder), daemon=True).start()
    key = secrets.token_bytes(32)
    asked: Connection[Any, Any] | None = None
    error: Exception | None = None
    try:
        # Not a port, to which anybody on this machine may connect, and keep the process waiting.
        address = os.path.join(folder.name, "job")
        with folder, Listener(address, authkey=key) as listener, open_driver_job(path, **options) as job:
            kept = KeptJob(share=job.share, repeated=job.committed is not None, address=address, key=key)
            if not kept.repeated:
                opener.send(kept)
                asked = _serve(listener, job)
    except Exception as failure:
        error = failure
    answerer = asked if asked is not None else opener
    with answerer, suppress(OSError):
        answerer.send(error if asked is not None or error is not None else kept)


def _serve(listener: Listener, job: DriverJob) -> Connection[Any, Any]:
    """Do what is asked until the job has ended; returns who asked last, and waits until it is cleared up."""
    while True:
        try:
            asker: Connection[Any, Any] = listener.accept()
        except (OSError, EOFError, AuthenticationError):
            continue
        try:
            question = asker.recv()
        except (OSError, EOFError):
            asker.close()
            continue
        if question[0] == "give up":
            return asker
        _, entries, records = question
        try:
            job.commit(entries, records)
        except Exception as error:
            # The engine gives it up next; what may have taken effect stays, as the job itself knows.
            with asker, suppress(OSError):
                asker.send(error)
        else:
            return asker


def _socket_folder() -> tempfile.TemporaryDirectory[str]:
    """Make a folder that no other user may enter, and whose path is short enough for a socket in it (104 bytes)."""
    usual = tempfile.gettempdir()
    return tempfile.TemporaryDirectory(prefix="asyncrec-", dir=usual if len(os.fsencode(usual)) < 80 else "/tmp")


def _end_with(parent: int, folder: tempfile.TemporaryDirectory[str]) -> None:
    """End this process, as if it were killed, when another has ended. Its folder goes, too."""
    try:
        select.select([os.pidfd_open(parent)], [], [])
    except ProcessLookupError:
        pass
    except (AttributeError, OSError):  # this system has no such call, or forbids it
        while _lives(parent):
            time.sleep(_LOOK_SECONDS)
    with suppress(OSError):
        folder.cleanup()
    os._exit(1)


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


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
