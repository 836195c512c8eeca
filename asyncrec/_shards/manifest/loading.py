"""`load_history` reads all commits of a data set from its newest checkpoint and all newer segments.

Objects that a checkpoint covers may be deleted during loading. If an object is missing, whether it was listed or not,
there must be a newer checkpoint, so loading starts again. Checkpoints are listed after segments, so if a segment was
deleted before the listing reached it, the listing includes the checkpoint that covers it. The listing of a local folder
is an exception, because it reads all names before it examines the first file (`asyncrec._shards.manifest.listed`).

The segments of a log are numbered without gaps, and the segment that ends the log is the last one. Suppose A commits
segments 1, 2 and 3 while B lists them: the first page of the listing may end before 2 exists, and the second page may
contain 3. A checkpoint made from this listing would cover 3 but not 2, and 2 would be lost forever. Therefore the
folder is listed again if the segments are inconsistent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar, TypeVarTuple

import anyio

from asyncrec._concurrency.map import for_each
from asyncrec._concurrency.tasks import in_thread
from asyncrec._numpy import is_warm
from asyncrec._shards.manifest.checkpoint import MOST_HEAD, CheckpointDecoder
from asyncrec._shards.manifest.history import History
from asyncrec._shards.manifest.key_run import KeyRun
from asyncrec._shards.manifest.listed import CoveredLogs, ListedManifest, list_manifest
from asyncrec._shards.manifest.merging import plus
from asyncrec._shards.manifest.names import (
    checkpoint_key,
    checkpoint_of,
    checkpoint_pointer_key,
    manifest_prefix,
    segment_key,
    segment_of,
)
from asyncrec._shards.manifest.segment import MAX_SEGMENT_BYTES, Segment, parse_segment
from asyncrec.errors import ManifestError, ObjectNotFoundError
from asyncrec.storage._base import Storage
from asyncrec.storage._resuming_source import ResumingSource

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


async def in_thread_unless(little: bool, func: Callable[[*Ts], T], *args: *Ts) -> T:
    """Call ``func(*args)`` directly, without yielding to the event loop, if ``little`` is true; else with `in_thread`.

    Set ``little`` if the call takes at most half a millisecond. A thread hop costs about 0.1 ms on an idle machine, but
    several milliseconds when other threads are busy.
    """
    return func(*args) if little else await in_thread(func, *args)


# The minimum time in seconds between the creation of a checkpoint and the deletion of a segment that it covers.
LEAST_GRACE = 60.0
# A store whose listings lag behind may still list deleted objects for a while.
_ATTEMPTS = 10
_BETWEEN_ATTEMPTS = 0.2
# The number of segments whose text is kept in memory at the same time.
_TOGETHER = 128
# Entries are merged into the columns as soon as there are more than this many, and more than an eighth of the rows.
_LEAST_MERGED = 4096
_STEP = 1 << 20
# Manifests up to this size are parsed and merged in the event loop. This takes at most half a millisecond.
_LITTLE_SEGMENTS = 100
_LITTLE_BYTES = 4096
MOST_POINTER_BYTES = 1 << 16


class LoadedManifest(NamedTuple):
    """A loaded manifest.

    Attributes:
        listed: the listing of its folder.
        base: the history to which the newer segments were added: the newest checkpoint, or the already known history.
        history: the complete history.
    """

    listed: ListedManifest
    base: History
    history: History

    async def count_uncovered(self) -> int:
        """Return the number of listed segments that `base` does not cover."""
        little = self.history.is_little and len(self.listed.segments) <= _LITTLE_SEGMENTS
        return await in_thread_unless(little, self.listed.count_uncovered, self.base.covered)


async def load_history(folder: Storage, name: str) -> History:
    """Load all commits of a data set. A writer's closing segment replaces all its other segments.

    Raises:
        ManifestError: a segment or a checkpoint cannot be read, or is missing.
    """
    found = await find_history(folder, name)
    return await in_thread_unless(is_warm(), History) if found is None else found


async def find_history(folder: Storage, name: str) -> History | None:
    """Load a history like `load_history`, but return `None` without importing NumPy if there is no data set."""
    found = await load_listed(folder, name)
    return None if found is None else found.history


async def load_listed(folder: Storage, name: str, known: LoadedManifest | None = None) -> LoadedManifest | None:
    """Load a manifest, reusing ``known``, the result of an earlier call. Return `None` if no object is listed.

    If there has been no new commit or checkpoint since then, the returned history is the same object.

    Raises:
        ManifestError: a segment or a checkpoint cannot be read, or is missing.
    """
    missing: Exception | None = None
    for attempt in range(_ATTEMPTS):
        if attempt > 1:
            await anyio.sleep(_BETWEEN_ATTEMPTS * attempt)
        listed = await list_manifest(folder, name)
        if not listed.segments and not listed.newest:
            return None
        try:
            if known is not None and not attempt and await in_thread(listed.continues, known.listed):
                base = known.history
            else:
                base = await _load_base(folder, name, listed)
            return LoadedManifest(listed, base, await _merged_with(folder, name, base, listed))
        except (ObjectNotFoundError, _Torn) as error:
            missing = error
    raise ManifestError(f"{folder.root}/{name}: part of the manifest is missing: {missing}") from missing


class _Torn(Exception):
    """Raised if the listed segments are inconsistent."""


async def _load_base(folder: Storage, name: str, listed: ListedManifest) -> History:
    """Load the newest checkpoint of a listing, or return an empty history if the listing has no checkpoint."""
    if not listed.newest:
        return await in_thread_unless(is_warm(), History)
    key = checkpoint_key(name, listed.newest, await pointed_checkpoint(folder, name, listed, listed.newest))
    history = await read_checkpoint(folder, key)
    if history.checkpoint != listed.newest:
        raise ManifestError(
            f"{folder.root}/{key}: the file contains checkpoint {history.checkpoint}, which does not match its "
            "name; it is damaged"
        )
    return history


async def _merged_with(folder: Storage, name: str, history: History, listed: ListedManifest) -> History:
    """Merge those listed segments that a history does not cover into that history.

    Raises:
        _Torn: the segments are inconsistent.
    """

    def look() -> dict[str, list[int]]:  # takes a tenth of a second for 100,000 commits
        logs: dict[str, list[int]] = {}
        last, ended = history.covered.last, history.ended
        for file in listed.segments:
            if (found := segment_of(file)) and found[1] > last.get(found[0], 0) and found[0] not in ended:
                logs.setdefault(found[0], []).append(found[1])
        for writer, numbers in logs.items():
            first = last.get(writer, 0) + 1
            if len(numbers) != max(numbers) - first + 1:
                missing = min(set(range(first, max(numbers))).difference(numbers))
                raise _Torn(f"{segment_key(name, writer, missing)} is not listed, but a later one is")
        return logs

    def files(logs: dict[str, list[int]]) -> list[str]:
        keys = [segment_key(name, writer, number) for writer, numbers in logs.items() for number in numbers]
        return [key[len(manifest_prefix(name)) :] for key in keys]

    little = history.is_little and len(listed.segments) <= _LITTLE_SEGMENTS
    logs = await in_thread_unless(little, look)
    if not logs:
        return history
    newest = await in_thread_unless(little, lambda: files({each: [max(numbers)] for each, numbers in logs.items()}))
    history = await _merged(folder, name, history, newest, covers=newest)
    # A closing segment repeats the earlier segments of its log. A tombstone does not, because the process that created
    # it could not know about commits that were still in progress.
    well = history.closed_well
    before = {writer: sorted(numbers)[:-1] for writer, numbers in logs.items() if writer not in well}
    return await _merged(folder, name, history, await in_thread_unless(little, files, before))


async def pointed_checkpoint(folder: Storage, name: str, listed: ListedManifest, number: int) -> str:
    """Return the maker of checkpoint ``number``. If there are several candidates, read it from the pointer."""
    makers = listed.checkpoints.get(number, {})
    if len(makers) == 1:
        return next(iter(makers))
    key = checkpoint_pointer_key(name, number)
    found, maker = await read_pointer(folder, key)
    if found != number:
        raise ManifestError(
            f"{key}: the file names checkpoint {found}, which does not match its own number; it is damaged"
        )
    return maker


async def read_pointer(folder: Storage, key: str) -> tuple[int, str]:
    """Return the number and the maker of the checkpoint that a pointer names.

    Raises:
        ObjectNotFoundError: the pointer does not exist.
        ManifestError: the pointer does not name a checkpoint.
    """
    try:
        content = await folder.get(key, max_bytes=MOST_POINTER_BYTES)
        found = checkpoint_of(json.loads(content)["checkpoint"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ManifestError(f"{key}: the file does not name a checkpoint; it is damaged: {str(error)[:80]}") from error
    if found is None or found[1] is None:
        raise ManifestError(f"{key}: the file does not name a checkpoint; it is damaged")
    return found[0], found[1]


async def read_checkpoint(folder: Storage, key: str) -> History:
    """Read a checkpoint.

    Raises:
        ObjectNotFoundError: the checkpoint does not exist.
        ManifestError: the checkpoint cannot be read.
    """
    decoder = CheckpointDecoder(key)
    async with ResumingSource(folder, key) as source:
        while block := await source.receive(_STEP):
            await in_thread(decoder.feed, block)
    return await in_thread(decoder.finish)


async def load_runs(folder: Storage, key: str) -> tuple[KeyRun, ...]:
    """Return the descriptions of a checkpoint's runs of keys, reading only the beginning of the checkpoint.

    Raises:
        ObjectNotFoundError: the checkpoint does not exist.
        ManifestError: its first line cannot be read.
    """
    decoder = CheckpointDecoder(key)
    async with ResumingSource(folder, key, end=MOST_HEAD, read_ahead=0) as source:
        while decoder.runs is None and (block := await source.receive(MOST_HEAD)):
            await in_thread(decoder.feed, block)
    if decoder.runs is None:
        raise ManifestError(f"{key}: the first line is truncated; the checkpoint is damaged")
    return decoder.runs


async def load_covered(folder: Storage, key: str) -> CoveredLogs:
    """Return the last segment of each log that a checkpoint covers, reading no more of the checkpoint than needed."""
    decoder = CheckpointDecoder(key)
    async with ResumingSource(folder, key) as source:
        while not decoder.knows_covered and (block := await source.receive(_STEP)):
            await in_thread(decoder.feed, block)
    return decoder.covered


async def _merged(
    folder: Storage, name: str, history: History, names: Sequence[str], *, covers: Sequence[str] = ()
) -> History:
    """Merge segments into a history in groups, because columns need only a sixth of the memory that objects need.

    If the segments are the last ones of their logs, ``covers`` contains their names. For earlier segments, it is empty.

    Raises:
        _Torn: a segment ends its log, but a later segment is listed.
    """
    prefix = manifest_prefix(name)

    async def content(each: str) -> bytes:
        try:
            return await folder.get(prefix + each, max_bytes=MAX_SEGMENT_BYTES)
        except ValueError as error:
            raise ManifestError(f"{prefix}{each}: the file is too large to be a manifest segment: {error}") from error

    # The objects are also freed in the worker threads, because freeing a million entries takes a tenth of a second.
    waiting: list[Segment] = []
    entries = 0

    def merge(covers: Sequence[str]) -> None:
        nonlocal history
        history = plus(history, waiting, names=covers)
        waiting.clear()

    def take(contents: list[bytes], some: Sequence[str], *, last: bool) -> None:
        nonlocal entries
        for each, content in zip(some, contents, strict=True):
            segment = parse_segment(content, name=prefix + each)
            if segment.closed and not covers:
                raise _Torn(f"{prefix}{each} ends its log, but a later segment is listed")
            waiting.append(segment)
            entries += len(segment.add)
        contents.clear()
        if last:
            merge(covers)
        elif entries > max(_LEAST_MERGED, len(history.shards) // 8):
            merge(())
            entries = 0

    for at in range(0, len(names), _TOGETHER):
        some = names[at : at + _TOGETHER]
        contents = await for_each(content, some)
        little = history.is_little and len(covers) <= _LITTLE_SEGMENTS and sum(map(len, contents)) <= _LITTLE_BYTES
        await in_thread_unless(little, partial(take, contents, some, last=at + _TOGETHER >= len(names)))
    return history
