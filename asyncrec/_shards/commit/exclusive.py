"""`create` creates a small object exclusively: if several processes try to create it, exactly one of them succeeds.

All decisions about a data set are made in this way: commits, closing segments, tombstones, claims, and places in the
log of removals. Each process learns the outcome, if possible. Such an object is sent in one part, so every tested store
can create it exclusively (`asyncrec doctor` checks a store).
"""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager

import anyio

from asyncrec._concurrency.deadline import Deadline
from asyncrec._path_log import PathLog
from asyncrec.errors import ObjectExistsError, ObjectNotFoundError, TransientStorageError, UnsettledError
from asyncrec.storage._base import Storage
from asyncrec.storage._retry import BRIEF, DEFAULT, patience
from asyncrec.storage._url import join

_path_log = PathLog("asyncrec.shards")

# The time limit, in seconds, for creating a small object, including the backend's retries. Reading it back has a
# separate limit of the same length.
_SECONDS = 60


async def create(
    storage: Storage, key: str, content: bytes, *, deadline: Deadline | None = None, shield: bool = True
) -> None:
    """Create an object exclusively. The content must be unique.

    If the store does not respond, the object is read back to find out whether it was created.

    The request is shielded and has a time limit. ``deadline`` can end it earlier, and may be brought forward while the
    request is in flight. Without ``shield``, a cancellation leaves it unknown whether the object exists, and the caller
    must handle both cases.

    Raises:
        ObjectExistsError: another writer's object exists.
        UnsettledError: it is unknown whether the object was created; chained to the first failure.
        StorageError: the store rejected the request.
    """
    failure: Exception | None = None

    def limited(seconds: float = _SECONDS) -> AbstractContextManager[anyio.CancelScope]:
        if deadline is not None:
            return deadline.within(seconds, shield=shield)
        return anyio.move_on_after(seconds, shield=shield)

    with limited():
        try:
            await storage.put(key, content, exclusive=True)
            return
        except Exception as error:
            failure = error
    # If a response is lost, the request seems to fail, and a retry seems to find another writer's object. Reading back
    # tells the cases apart; for a commit, it may take as long as the request itself.
    brief = not shield and (failure is None or isinstance(failure, TransientStorageError))
    with limited(BRIEF.total if brief else _SECONDS), patience(BRIEF if brief else DEFAULT):
        try:
            if await storage.get(key) == content:
                return
        except ObjectNotFoundError:
            # A rejection is a definite response. After any other failure, the request may still be in flight, and take
            # effect after this read.
            if failure is None or isinstance(failure, TransientStorageError):
                raise _unsettled(storage, key, failure) from failure
        except Exception as error:
            # When a job is being opened, the caller raises the first failure anyway, and no records can be lost.
            level = logging.WARNING if shield else logging.DEBUG
            _path_log.log(level, join(storage.root, key), "cannot be read back: %s", error)
            raise _unsettled(storage, key, failure) from failure
        else:
            failure = failure if isinstance(failure, ObjectExistsError) else _taken(storage, key)
        raise failure
    raise _unsettled(storage, key, failure) from failure


def _taken(storage: Storage, key: str) -> ObjectExistsError:
    return ObjectExistsError(f"{storage.root}/{key}: another process created this object first")


def _unsettled(storage: Storage, key: str, failure: Exception | None) -> UnsettledError:
    said = f": {failure}" if failure is not None else ""
    return UnsettledError(
        f"{storage.root}/{key}: it is unknown whether this object was created, so the commit may have taken "
        f"effect{said}; read the data set to find out"
    )
