"""`Upload`: how far one shard in the spool has come, for who writes it and who uploads it."""

from __future__ import annotations

import anyio

from asyncrec._shards.manifest.segment import ShardEntry


class Upload:
    """A shard on its way from the spool into the store.

    Attributes:
        written: how many bytes of it lie on the disk.
        entry: what the manifest is to say of it, once it is whole.
        ticket: the last record's; known then, too.
        dropped: whether it will never be whole.
        published: whether the store has it.
        stamped: whether the entry has the time of its commit.
        committed: whether a manifest names it, after which nothing of it is tried again.
        attempts: how often it was begun.
    """

    def __init__(self, key: str) -> None:
        self.key = key
        self.written = 0
        self.entry: ShardEntry | None = None
        self.ticket = 0
        self.dropped = False
        self.published = False
        self.stamped = False
        self.committed = False
        self.attempts = 0
        self._changed = anyio.Event()

    def change(self) -> None:
        """Have who waits look again."""
        self._changed.set()
        self._changed = anyio.Event()

    async def wait(self) -> None:
        """Wait for the next change."""
        await self._changed.wait()
