"""`Uploader` is a task that sends shards from the spool to the store while they are still being written."""

from __future__ import annotations

import math
import os
from collections import deque
from contextlib import suppress
from functools import partial
from typing import Protocol

import anyio

from asyncrec._concurrency.deadline import clock_of_loop
from asyncrec._concurrency.tasks import acquire_in_thread, in_thread
from asyncrec._framing.crc import crc32c
from asyncrec._path_log import PathLog
from asyncrec._records.writing.memory_budget import ByteBudget
from asyncrec._shards.commit.fates import Fates
from asyncrec._shards.journal.remedies import recover_command
from asyncrec._shards.manifest.segment import ShardEntry
from asyncrec._shards.spool.backlog import Upload
from asyncrec._shards.spool.folder import SpoolFolder
from asyncrec.errors import IntegrityError, ObjectExistsError, ObjectNotFoundError, StorageError, TransientStorageError
from asyncrec.storage._base import ByteSink, Storage
from asyncrec.storage._checksums import check_sent, stored_crc32c
from asyncrec.storage._local.opening import open_own
from asyncrec.storage._local.storage import mapped_errors
from asyncrec.storage._retry import telling_faults
from asyncrec.storage._url import join

_path_log = PathLog("asyncrec.shards")

# The number of seconds between attempts to upload a shard. The backend retries for two minutes before an attempt fails.
_FIRST_DELAY = 1.0
_MOST_DELAY = 30.0

# The number of bytes to read before computing their checksum, so that they are still in the CPU cache.
_STEP = 256 << 10


class UploadEvents(Protocol):
    """The events that an `Uploader` reports about its shards. The writer that uses it implements these methods."""

    async def before_upload_ends(self, upload: Upload) -> None:
        """Called when all bytes of a shard have been sent. The shard is published after this returns."""

    async def uploaded(self, upload: Upload) -> None:
        """Called to commit a published shard, and called again if it raises a transient error."""

    def ended(self, error: BaseException | None) -> None:
        """Called when the uploader has finished, or has failed with ``error``."""


class _Dropped(Exception):
    pass


class Uploader:
    """A task that uploads the shards of one object writer from the spool, one after another.

    Attributes:
        error: the error with which the task failed. All uncommitted shards are then still in the spool.
        retries: the number of times that a request or an entire shard was retried.
        next_try: when the latest retry is or was due, by the event loop's clock.
    """

    def __init__(
        self, spool: SpoolFolder, store: Storage, budget: ByteBudget, events: UploadEvents, fates: Fates
    ) -> None:
        self._spool = spool
        self._store = store
        self._fates = fates
        self._budget = budget
        self._events = events
        self._waiting: deque[Upload] = deque()
        self._buffer = bytearray()  # one chunk, reused because allocating each chunk would take as long as the copy
        self._arrived = anyio.Event()
        self._closing = anyio.Event()
        self.finished = anyio.Event()
        self.error: BaseException | None = None
        self.retries = 0
        self.next_try = -math.inf
        self._clock = clock_of_loop()

    # -- called by the object writer -----------------------------------------------------------------------------------

    def begin(self, key: str) -> Upload:
        """Register a shard that is being opened in the spool, and return its upload."""
        self._fates.move(key, "begin")
        upload = self._spool.backlog.begin(key)
        self._waiting.append(upload)
        self._arrived.set()
        return upload

    def complete(self, upload: Upload, entry: ShardEntry, ticket: int) -> None:
        """Record that a shard is complete, with its manifest entry and the ticket of its last record."""
        self._fates.move(upload.key, "finish")
        upload.entry, upload.ticket = entry, ticket
        upload.change()

    def drop(self, upload: Upload) -> None:
        """Drop a shard that the object writer failed to write. `asyncrec.recover` commits its acknowledged records."""
        self._fates.move(upload.key, "drop")
        upload.change()

    def close(self) -> None:
        """Make `run` return once every shard is uploaded, and stop retrying failed uploads."""
        self._closing.set()
        self._arrived.set()

    # -- the task -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Upload shards as they arrive, until `close` is called."""
        try:
            with telling_faults(self._failed):
                while upload := await self._next():
                    await self._try(upload)
                    self._waiting.popleft()
                    self._spool.backlog.end(upload)
        except Exception as error:
            self.error = error
        except BaseException as error:
            self.error = error
            raise
        finally:
            self.finished.set()
            self._events.ended(self.error)

    def _failed(self, delay: float) -> None:
        """Record a failure that will be retried in ``delay`` seconds."""
        self.retries += 1
        self.next_try = self._clock() + delay

    async def _next(self) -> Upload | None:
        while not self._waiting:
            if self._closing.is_set():
                return None
            self._arrived = anyio.Event()
            await self._arrived.wait()
        return self._waiting[0]

    async def _try(self, upload: Upload) -> None:
        """Upload a shard, retrying until it is committed, is dropped, or fails permanently."""
        delay = _FIRST_DELAY
        while True:
            last = self._closing.is_set()
            try:
                await self._upload(upload)
                return
            except _Dropped:
                return
            except TransientStorageError as error:
                if self._fates[upload.key] == "committed":
                    raise  # the caller's own commit callback raised it
                if last:
                    command = recover_command(self._spool.root, to="...")
                    error.add_note(
                        f"{upload.key} is still in the spool {self._spool.root}; to upload it, run {command}"
                    )
                    raise
                path, told = join(self._store.root, upload.key), {"attempt": self.retries + 1, "seconds": delay}
                message = "the upload failed and will be retried: %s"
                _path_log.warning(path, message, error, shard=upload.key, **told)
            self._failed(delay)
            with anyio.move_on_after(delay):
                await self._closing.wait()
            delay = min(2 * delay, _MOST_DELAY)

    async def _upload(self, upload: Upload) -> None:
        state = self._fates[upload.key]
        if state != "published":
            try:
                await self._publish(upload)
            except ObjectExistsError:
                # The object was created by an earlier attempt whose response was lost, or by another writer.
                if state != "doubtful" or upload.entry is None or not await self._is_there(upload.entry):
                    raise
        await self._events.uploaded(upload)

    async def _publish(self, upload: Upload) -> None:
        async with self._store.open_sink(upload.key, exclusive=True) as sink:
            sink.hold_at_most(self._budget.share)
            entry = await self._send(upload, sink)
            await self._events.before_upload_ends(upload)
            for sidecar in (entry.index, entry.keys):
                if sidecar is not None:
                    assert sidecar.bytes is not None, "the size of a written file is known"
                    upload = Upload(sidecar.path)
                    upload.written = sidecar.bytes
                    upload.entry = ShardEntry(
                        path=sidecar.path, records=0, bytes=sidecar.bytes, crc32c=sidecar.crc32c, compression=""
                    )
                    async with self._store.open_sink(sidecar.path) as sidecar_sink:
                        await self._send(upload, sidecar_sink)
                    self._check(upload.entry, sidecar_sink)
        self._check(entry, sink)

    def _check(self, sent: ShardEntry, sink: ByteSink) -> None:
        path, then = join(self._store.root, sent.path), f"the shard stays in the spool {self._spool.root}"
        check_sent(path, sink.published, size=sent.bytes, crc32c=sent.crc32c, then=then)

    async def _send(self, upload: Upload, sink: ByteSink) -> ShardEntry:
        """Send a file, up to its end, while it is being written."""
        fd = -1
        position = checksum = held = 0
        try:
            while True:
                if self._fates[upload.key] == "dropped":
                    raise _Dropped
                size = sink.chunk_size
                ready = upload.written - position
                if ready < size and upload.entry is None:
                    await upload.wait()
                    continue
                if not ready:
                    break
                if fd < 0:
                    fd = await acquire_in_thread(partial(self._open, upload.key), os.close)
                self._budget.account(size - held, chunk=True)
                held = size
                if len(self._buffer) < size:
                    self._buffer = bytearray(size)
                block = memoryview(self._buffer)[: min(size, ready)]
                checksum = await in_thread(_read, fd, block, position, checksum, upload.key)
                await sink.send([block])
                position += len(block)
        finally:
            self._budget.account(-held)
            if fd >= 0:
                os.close(fd)
        entry = upload.entry
        assert entry is not None, "the file is complete"
        if entry.bytes != position or entry.crc32c not in (None, checksum):
            raise IntegrityError(
                f"{self._spool.path_of(upload.key)}: {entry.bytes:,} bytes (crc32c {entry.crc32c or 0:08x}) were "
                f"written, but {position:,} ({checksum:08x}) were read back; the spool's disk is probably "
                "faulty"
            )
        return entry

    async def _is_there(self, entry: ShardEntry) -> bool:
        """Return whether the object that has the shard's name in the store is this shard."""
        info = await self._store.head(entry.path)
        if info.size != entry.bytes:
            return False
        checksum = info.crc32c
        if checksum is None:
            checksum = await stored_crc32c(self._store, entry.path, info=info)
        return checksum == entry.crc32c

    def _open(self, key: str) -> int:
        """Open the file of a shard under its current name."""
        with suppress(ObjectNotFoundError):
            return open_own(str(self._spool.partial_of(key)), os.O_RDONLY, linked=True)
        return open_own(str(self._spool.path_of(key)), os.O_RDONLY, linked=True)


def _read(fd: int, block: memoryview, position: int, checksum: int, name: str) -> int:
    """Fill the block from the file. Return the checksum of everything in the file up to the end of the block."""
    with mapped_errors("reading", name):
        done = 0
        while done < len(block):
            count = os.preadv(fd, [block[done : done + _STEP]], position + done)
            if not count:
                raise StorageError(
                    f"{name}: the file in the spool is shorter than the data written to it; the disk of the spool "
                    "is probably faulty"
                )
            checksum = crc32c(block[done : done + count], checksum)
            done += count
    return checksum
