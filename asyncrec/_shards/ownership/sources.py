"""A source of records, such as a partition of a queue, has one writer at a time, which starts at the stored position.

Suppose process P reads a queue from position 8 on, and stalls for an hour. Process Q takes its place, so both would
store message 8. The naive approach is to lock the source, but P does not know when it has lost the lock. Another
approach is to compare positions before each commit, but P could compare, stall, and commit an hour later. Therefore Q
takes these steps (docs/protocol.md):

1. *The last owner's log must have ended*, or the owner must have released its turn. If not, Q ends the log, even if the
   owner P is alive. After that, none of P's requests is acknowledged, and the records that P had flushed are committed.
   P continues in a new log, with its other sources.
2. *Q wins the next turn* by creating ``_source-<hash>-000002.json`` exclusively. If several processes want the source,
   one wins, and the others start again, with the winner as the last owner.
3. *Q lists the turns again*, because the number may have been used hours ago, and deleted after later turns were won.
4. *Only now* does Q read the position.

A new turn is larger than every turn in the manifest. A copy has the positions of the original, but no turns.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Mapping
from typing import NamedTuple

from asyncrec._shards.commit.closing import abandoned_error, entomb, load_closing
from asyncrec._shards.commit.exclusive import create
from asyncrec._shards.journal.header import JobHeader, this_host
from asyncrec._shards.journal.remedies import command_for
from asyncrec._shards.manifest.history import History
from asyncrec._shards.manifest.loading import LoadedManifest, load_listed
from asyncrec._shards.manifest.names import begin_of, hash_of_source, manifest_prefix, source_turn_key, source_turn_of
from asyncrec._shards.manifest.progress import MOST_POSITION, MOST_SOURCE_BYTES, MOST_SOURCES, NO_POSITION, is_source
from asyncrec._shards.ownership.census import find_job
from asyncrec._shards.ownership.end_job import end_job
from asyncrec._shards.ownership.verdict import Verdict
from asyncrec.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ConflictError,
    ManifestError,
    ObjectExistsError,
    ObjectNotFoundError,
)
from asyncrec.storage._base import Storage
from asyncrec.storage._url import join

# A second or later attempt is needed if another process took the source, or ended its owner, just before this one.
_ATTEMPTS = 10
# A name has at most 512 bytes, each of which JSON may escape as six.
_MOST_BYTES = 8192
_VERSION = 1
# The turn and the position of a source from which no record is stored.
NOTHING = (0, NO_POSITION)


class TakenSource(NamedTuple):
    """A source that a writer owns.

    Attributes:
        source: the name of the source.
        turn: the number of the turn that the writer has won.
        position: the position of the last stored message, or -1 if no message is stored.
        known: the manifest that was read. Pass it when taking the next source, so that only new segments are read.
    """

    source: str
    turn: int
    position: int
    known: LoadedManifest | None

    @property
    def release(self) -> Mapping[str, int]:
        """The value of `Segment.releases` in the segment with which the writer releases the source.

        That segment, or an earlier one, must state the position of the last record that the writer has acknowledged.
        The writer must not take the source again before that segment exists.
        """
        return {self.source: self.turn}


def check_source(source: str) -> str:
    """Return the name of a source, or raise an error if it is invalid.

    Raises:
        TypeError: the name is not text.
        ValueError: the name is empty or longer than 512 bytes, or has control characters or text that is not Unicode.
    """
    if not isinstance(source, str):
        raise ArgumentTypeError(f"source={source!r}: must be text, not {type(source).__name__}")
    if not is_source(source):
        raise ArgumentValueError(
            f"source={source[:80]!r}: must have 1 to {MOST_SOURCE_BYTES} bytes as UTF-8, and no control characters"
        )
    return source


def check_position(position: int) -> int:
    """Return a position in a source, or raise an error if it is invalid.

    Raises:
        TypeError: the position is not an integer.
        ValueError: the position is negative, or larger than 2**63 - 1.
    """
    if type(position) is not int:
        if isinstance(position, bool):
            raise ArgumentTypeError(f"position={position!r}: must be an integer, not bool")
        try:
            position = operator.index(position)
        except TypeError:
            raise ArgumentTypeError(
                f"position={position!r}: must be an integer, not {type(position).__name__}"
            ) from None
    if not 0 <= position <= MOST_POSITION:
        raise ArgumentValueError(f"position={position}: must be from 0 to 2**63 - 1")
    return position


async def take_source(
    folder: Storage, header: JobHeader, source: str, *, since: int | None = None, known: LoadedManifest | None = None
) -> TakenSource:
    """Win the next turn of a source for a job that has begun, and read the stored position.

    If the call fails, it can be repeated: it does no harm if a turn was won but the response was lost. A writer must
    take one source at a time.

    Args:
        header: the header of the job that takes the source.
        since: the turn that the writer had in its last log, which another process has ended. The source is taken only
            if it has not had any other owner since then.
        known: `TakenSource.known` of the last source that was taken.

    Raises:
        ValueError: the job commits all its shards together, or the data set has too many sources.
        ConflictError: another process has taken the source, its owner cannot be ended from here, or the job's own log
            was ended (in which case ``ended`` is set).
        ManifestError: a turn cannot be read, or belongs to another source whose name has the same hash.
        StorageError: it is unknown whether the turn was won.
    """
    if header.kind != "rolling":
        raise ArgumentValueError(
            f"{header.url}: a writer that commits all shards together (num_shards=, mode='replace') takes no source="
        )
    return await take_turn(folder, header.name, header.writer, source, since=since, known=known)


async def take_turn(
    folder: Storage,
    name: str,
    writer: str,
    source: str,
    *,
    since: int | None = None,
    known: LoadedManifest | None = None,
) -> TakenSource:
    """Take a source like `take_source`, but without a header: a process that only forgets a source has none."""
    taking = _Taking(folder, name, source, known)
    for _ in range(_ATTEMPTS):
        turn, owner = await taking.look()
        if since is not None and turn > since and owner != writer:
            raise taking.lost(owner)
        if owner and owner != writer and not taking.is_free(turn, owner):
            await _end_owner(folder, name, owner, source)
            taking.ended.add(owner)
            continue
        if not turn and taking.is_full():
            raise ArgumentValueError(
                f"{taking.path}: the data set has {MOST_SOURCES:,} sources, and cannot have more; {source!r} is new"
            )
        number = turn + 1
        taking.least = number
        content = json.dumps({"version": _VERSION, "source": source, "writer": writer}).encode() + b"\n"
        try:
            # This need not be shielded: a turn whose creation got no response does not block any process.
            await create(folder, source_turn_key(name, source, number), content, shield=False)
        except ObjectExistsError:
            await _refuse_ended(folder, name, writer)
            continue
        if await taking.look() == (number, writer):
            return TakenSource(source, number, taking.stored[1], taking.known)
        await _refuse_ended(folder, name, writer)
    raise taking.lost(owner)


async def _end_owner(folder: Storage, name: str, owner: str, source: str) -> None:
    """End the log of a source's last owner, in the same way as a recovery but even if the owner is alive.

    Raises:
        ConflictError: the log cannot be ended from here; the message says what to do.
    """
    job = await find_job(folder, name, owner)
    if job is None:  # it ended or its mark was deleted; after this, it cannot commit
        await entomb(folder, name, owner, by=this_host())
        return
    header = job.header
    where = f"{join(folder.root, name)}: the source {source!r} belongs to the writer {owner}"
    if header.kind != "rolling":
        raise ManifestError(f"{where}, which is not a rolling writer and can have no source; its turn is damaged")
    # Records in a spool on another machine may have been acknowledged, but they cannot be read from here.
    in_spool = job.marked and header.spool
    answer = await end_job(folder, job, Verdict(dead=not in_spool, living=not in_spool, finishes="rolling"))
    if answer not in ("alive", "unknown", "promised"):
        return
    who = f"{where} (process {header.pid} on {header.host}), "
    if answer == "alive":
        raise ConflictError(
            f"{who}which is running, or is being recovered, and keeps flushed records on a disk; stop that "
            "writer, or call its release()"
        )
    raise ConflictError(
        f"{who}whose flushed records are in a spool; stop the writer and recover its spool there "
        f"({command_for(header, 'SPOOL')})"
    )


async def _refuse_ended(folder: Storage, name: str, writer: str) -> None:
    """Raise an error if the log of a job that did not win a turn has ended. The winner may have ended it.

    Raises:
        ConflictError: the log has ended.
    """
    if (closing := await load_closing(folder, name, writer)) is not None:
        raise abandoned_error(folder, name, closing)


class _Taking:
    """The state of a source while a process takes it.

    Attributes:
        path: the path of the data set.
        least: a turn that is known to exist, although a listing may not show it yet.
        ended: owners whose logs are known to have ended, although a listing may not show that yet.
        stored: the highest turn in which a position was committed, and that position; `NOTHING` if there is no such
            turn.
        known: the manifest that was read last.
    """

    def __init__(self, folder: Storage, name: str, source: str, known: LoadedManifest | None) -> None:
        self.path = join(folder.root, name)
        self.least = 0
        self.ended: set[str] = set()
        self.stored = NOTHING
        self.known = known
        self._folder = folder
        self._name = name
        self._source = source

    @property
    def _history(self) -> History | None:
        return None if self.known is None else self.known.history

    async def look(self) -> tuple[int, str]:
        """Return the last turn and its owner, and load the stored position. Turn 0 and a copy's turn have owner ``""``.

        Raises:
            ManifestError: the turn cannot be read, or belongs to another source.
        """
        turn = await self._last_turn()
        while turn and (owner := await self._owner(turn)) is None:
            # Between the listing and this request, another owner took a later turn and deleted this one.
            if (later := await self._last_turn()) == turn:
                raise ManifestError(f"{self._key(turn)}: the store lists this turn but cannot find it")
            turn = later
        self.known = await load_listed(self._folder, self._name, self.known)
        if self._history is not None:
            self.stored = max(self.stored, self._history.progress.get(self._source, self.stored))
            released = self._history.releases.get(self._source, 0)
            if (later := max(self.stored[0], released)) > turn:  # it was won after the listing, or this is a copy
                return later, await self._owner(later) or ""
        return turn, owner or "" if turn else ""

    async def _last_turn(self) -> int:
        prefix = manifest_prefix(self._name)
        own = f"{prefix}_source-{hash_of_source(self._source)}-"
        found = [source_turn_of(info.key[len(prefix) :]) async for info in self._folder.list_objects(own)]
        return max([self.least, *(each[1] for each in found if each is not None)])

    def _key(self, turn: int) -> str:
        return join(self._folder.root, source_turn_key(self._name, self._source, turn))

    async def _owner(self, turn: int) -> str | None:
        """Return the owner of a turn, or `None` if the turn has been deleted."""
        try:
            content = await self._folder.get(source_turn_key(self._name, self._source, turn), max_bytes=_MOST_BYTES)
            data = json.loads(content)
            version, source, writer = data["version"], data["source"], data["writer"]
        except ObjectNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ManifestError(f"{self._key(turn)}: the file is not the turn of a source: {error}") from error
        if type(version) is not int or version != _VERSION:
            raise ManifestError(
                f"{self._key(turn)}: the turn has version {version!r}, but this release reads only version {_VERSION}; "
                "use a newer release of asyncrec"
            )
        if source != self._source:
            raise ManifestError(
                f"{self._key(turn)}: the sources {self._source!r} and {str(source)[:80]!r} have the same hash, so one "
                "data set cannot have both; give one of them another name, or write it to another data set"
            )
        # The id is checked because it becomes part of object names.
        if not isinstance(writer, str) or begin_of(f"{writer}-000000.jsonl") != writer:
            raise ManifestError(
                f"{self._key(turn)}: the turn names the writer {str(writer)[:80]!r}, which is not an id"
            )
        return writer

    def is_free(self, turn: int, owner: str) -> bool:
        """Return whether the owner's log has ended, or the owner has released this turn."""
        history = self._history
        return owner in self.ended or (
            history is not None and (owner in history.ended or history.releases.get(self._source) == turn)
        )

    def is_full(self) -> bool:
        """Return whether the data set has the maximum number of sources."""
        return self._history is not None and len(self._history.progress) >= MOST_SOURCES

    def lost(self, owner: str) -> ConflictError:
        return ConflictError(
            f"{self.path}: the writer {owner} has taken the source {self._source!r}; records from it that this "
            "writer has not stored are dropped, because the new owner reads them again"
        )
