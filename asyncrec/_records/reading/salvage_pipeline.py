"""`SalvagePipeline` continues after damage, in place of the `Pipeline` that encountered it.

The work is done in worker threads, because the search for the next record would block the loop for too long.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Literal

from anyio.lowlevel import checkpoint

from asyncrec._concurrency.tasks import ThreadedStep
from asyncrec._framing.damage import DamageLog
from asyncrec._framing.salvage.doubt import Found
from asyncrec._framing.salvage.frames import FrameSalvager, Run
from asyncrec._framing.salvage.members import MemberSalvager
from asyncrec._records.position import Position
from asyncrec._records.reading.decode_pipeline import ReadOptions
from asyncrec._records.record_size import framed_size
from asyncrec.storage._base import ByteSource


class SalvagePipeline:
    """A pass over one object from a position to its end, which returns the intact records.

    Args:
        log: the log to which damage is added.
        seek: a function that moves the object's source to another offset.
        size: the size of the object, in bytes.
        position: the position at which to begin. Its ``skip`` records have already been returned, or are not wanted.
        frame_bytes: the total size of the frames already returned.
        found: `FrameSalvager.found` of the previous pass.

    Attributes:
        records, members, offset, skip: as in `Pipeline`. The records that one call returns are adjacent in the object.
        frame_bytes: the total size of the frames returned so far.
    """

    def __init__(
        self,
        compression: Literal["", "GZIP", "ZLIB"],
        log: DamageLog,
        seek: Callable[[int], Awaitable[None]],
        options: ReadOptions,
        *,
        size: int,
        position: Position,
        frame_bytes: int,
        found: Found | None,
    ) -> None:
        records = position.record - position.skip
        self.records = records
        self.offset = position.offset
        self.skip = position.skip
        self.members: list[tuple[int, int]] = []
        self.frame_bytes = frame_bytes
        self._log = log
        self._lost_before = log.lost_bytes
        self._size = size
        self._seek = seek
        self._options = options
        self._runs: deque[Run] = deque()
        self._source_at: int | None = None  # the offset of the next byte that the source returns
        self._salvager: _Plain | MemberSalvager
        if compression:
            self._salvager = MemberSalvager(
                compression,
                log,
                start=position.offset,
                size=size,
                records=records,
                max_record_bytes=options.max_record_bytes,
                verify=options.verify,
            )
        else:
            frames = FrameSalvager(
                log.add,
                offset=position.offset,
                records=records,
                max_record_bytes=options.max_record_bytes,
                verify=options.verify,
                boundaries=options.boundaries,
                found=found,
            )
            self._salvager = _Plain(frames, position.offset)
        self._reading = ThreadedStep[tuple[list[Run], bool]]()

    @property
    def resumable(self) -> Position | None:
        """The position at which a `Pipeline` can continue after the damage; `None` while there is no such position."""
        if self._runs or self._reading.waits or self.skip:
            return None
        if self._salvager.whole_from is None or self._log.lost_bytes == self._lost_before:
            return None
        if self.found is not None and self.found.claim > self._size:
            return None  # only the object's end shows whether this place is ambiguous
        record, byte = self._salvager.whole_from
        return Position(byte, self.records - record, self.records)

    @property
    def found(self) -> Found | None:
        """The last place found by search, if it may still turn out to be ambiguous.

        The next pass needs it. It is always `None` in a compressed object.
        """
        return self._salvager.frames.found if isinstance(self._salvager, _Plain) else None

    async def next_records(self, source: ByteSource) -> list[bytes]:
        """Return at least one record, or an empty list at the end. If cancelled, nothing is lost."""
        await checkpoint()
        while True:
            while self._runs:
                if records := self._take(self._runs.popleft()):
                    return records
            if self._salvager.ended and not self._reading.waits:
                return []
            runs, wants_input = await self._reading.take(self._salvager.read, self._options.inflate_bytes)
            self.members = list(self._salvager.members)
            self._runs.extend(runs)
            if not wants_input:
                continue
            if self._source_at != self._salvager.position:
                self._source_at = None  # unknown if the seek is cancelled
                await self._seek(self._salvager.position)
                self._source_at = self._salvager.position
            block = await source.receive(self._salvager.wanted or self._options.chunk_size)
            self._salvager.feed(block)
            self._source_at += len(block)

    def _take(self, run: Run) -> list[bytes]:
        dropped = min(self.skip, len(run.records))
        self.skip -= dropped
        self.offset = run.offset + framed_size(list(map(len, run.records)))
        self.records = run.first + len(run.records)
        records = run.records[dropped:]
        self.frame_bytes += framed_size(list(map(len, records)))
        return records


class _Plain:
    """A salvager of an uncompressed object, with the interface of `MemberSalvager`."""

    members: tuple[tuple[int, int], ...] = ()

    def __init__(self, frames: FrameSalvager, start: int) -> None:
        self.frames = frames
        self.position = start
        self.ended = False
        self._block: bytes | None = None

    @property
    def wanted(self) -> int:
        return self.frames.wanted

    @property
    def whole_from(self) -> tuple[int, int] | None:
        return (self.frames.records, self.frames.offset) if self.frames.settled else None

    def feed(self, data: bytes) -> None:
        self._block = data
        self.position += len(data)

    def read(self, max_bytes: int) -> tuple[list[Run], bool]:
        block, self._block = self._block, None
        if block is None:
            return [], True
        if block:
            return self.frames.feed(block), True
        self.ended = True
        return self.frames.finish(), False
