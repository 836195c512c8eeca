"""`SpoolBacklog` pauses a writer while too many bytes are waiting in its spool to be uploaded."""

from __future__ import annotations

from collections.abc import Sequence

import anyio

from asyncrec._records.writing.memory_budget import ByteBudget
from asyncrec._records.writing.write_queue import WriteQueue
from asyncrec._shards.manifest.segment import ShardEntry
from asyncrec.errors import ArgumentValueError, StorageError


class Upload:
    """The upload of one shard from the spool to the store.

    Attributes:
        written: the number of bytes of the shard that are on the disk.
        entry: the shard's entry for the manifest; `None` until the shard is complete.
        ticket: the ticket of the shard's last record, set together with ``entry``.
    """

    def __init__(self, key: str) -> None:
        self.key = key
        self.written = 0
        self.entry: ShardEntry | None = None
        self.ticket = 0
        self._changed = anyio.Event()

    def change(self) -> None:
        """Wake the tasks that are waiting in `wait`."""
        self._changed.set()
        self._changed = anyio.Event()

    async def wait(self) -> None:
        """Wait for the next change."""
        await self._changed.wait()


# More than an hour of crawling at 2 MB/s, but little compared with a crawling machine's disk.
SPOOL_LIMIT = 8 << 30


class SpoolBacklog:
    """The number of bytes that a writer's shards occupy in its spool, with a limit.

    When the limit is reached, the writer stops accepting records, and the open shards are finished so that they can be
    uploaded. The writer accepts records again once a quarter of the limit is free.

    Attributes:
        limit: the maximum total size of the waiting and open shards in bytes. Index and keys files are not counted.
            Records accepted before the limit was reached may exceed it, by at most the writer's ``memory_limit``.
        used: the current total size of the waiting and open shards in bytes.
    """

    def __init__(
        self, path: str, folder: str, *, limit: int, budget: ByteBudget, queues: Sequence[WriteQueue], all_or_none: bool
    ) -> None:
        """``path`` and ``folder`` are the paths of the data set and of the spool, for error messages.

        With ``all_or_none``, no shard leaves the spool before all shards are complete.
        """
        if limit <= 0:
            raise ArgumentValueError(f"spool_limit={limit}: must be a number of bytes greater than 0")
        self.limit = limit
        self.used = 0
        self._path = path
        self._folder = folder
        self._budget = budget
        self._queues = queues
        self._all_or_none = all_or_none
        self._uploads: dict[str, Upload] = {}

    def begin(self, key: str) -> Upload:
        """Start tracking a shard that is being opened in the spool, and return its upload."""
        upload = self._uploads[key] = Upload(key)
        return upload

    def end(self, upload: Upload) -> None:
        """Stop tracking an upload that has finished or was dropped."""
        del self._uploads[upload.key]

    def sent(self, key: str, size: int) -> None:
        """Count ``size`` more bytes of a shard, which have reached the disk.

        Raises:
            StorageError: the spool is full, and no shard will leave it.
        """
        self.used += size
        if (upload := self._uploads.get(key)) is not None:
            upload.written += size
            upload.change()
        self._apply_limit()

    def freed(self, size: int) -> None:
        """Subtract the size of a shard that is no longer in the spool."""
        self.used -= size
        self._apply_limit()

    def _apply_limit(self) -> None:
        if not self._budget.paused and self.used < self.limit:
            return
        if 4 * self.used <= 3 * self.limit:
            self._budget.resume()
            return
        if not self._budget.paused:
            if self._all_or_none:
                raise StorageError(
                    f"{self._path}: the spool {self._folder} has reached its limit of {self.limit:,} bytes; fixed "
                    "shards stay in the spool until all are written, so raise spool_limit"
                )
            self._budget.pause()
        # Do this each time: records accepted earlier may have begun more shards, which would otherwise stay open.
        for queue in self._queues:
            queue.end_object()
