"""`Download`: the body of an answer, in blocks, as it comes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio

from asyncrec.errors import StorageError, TransientStorageError

from .limits import Limited

__all__ = ["Download"]

# Bytes taken from a body at a time: a step of the loop copies no more.
_BLOCK = 256 << 10
# What comes in smaller pieces is put together to blocks; larger ones are handed on as they are, for the copy would cost
# more than what it saves.
_SMALL = 64 << 10
# Seconds for closing the rest of a body that is not wanted.
_CLOSE_SECONDS = 2.0


class Download:
    """A body under way, which holds a connection until all of it came, or it is closed.

    Joined, its blocks would be copied once more, which is most of what reading costs.

    Args:
        body: of the SDK's answer.
        size: bytes it is to have.
        what: the object, for errors.
        patience: seconds without a byte after which it is given up.
    """

    def __init__(self, body: Any, size: int, what: str, patience: float) -> None:
        self._body = body
        self._size = self._missing = size
        self._what = what
        self._patience = patience
        self._ended = False

    async def receive(self, size: int) -> Sequence[bytes]:
        """Receive blocks of ``size`` bytes together, or up to 256 KiB more; fewer where the body ends or breaks off.

        Cancelled, what had come is lost: the download is of no use any more.

        Raises:
            TransientStorageError: no byte came.
            StorageError: more came than was asked for.
        """
        blocks = _Blocks()
        wanted = min(size, self._missing)
        try:
            with Limited(self._what, "same", self._patience, size):
                # To the very end, which gives the connection back; so the last read finds nothing.
                while not self._ended and (wanted > 0 or not self._missing):
                    block = await self._body.read(_BLOCK)
                    self._ended = not block
                    if len(block) > self._missing:
                        raise StorageError(f"{self._what}: more came than the {self._size:,} bytes asked for")
                    blocks.add(block)
                    wanted -= len(block)
                    self._missing -= len(block)
        except TransientStorageError:
            if not blocks.size:
                raise
            self._ended = True
        if not blocks.size and self._missing:
            raise TransientStorageError(
                f"{self._what}: the body ended, {self._missing:,} of {self._size:,} bytes short"
            )
        return blocks.all()

    async def aclose(self) -> None:
        with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
            await self._body.aclose()


class _Blocks:
    """The blocks that came of a body, those that are small put together.

    Attributes:
        size: of all, in bytes.
    """

    def __init__(self) -> None:
        self._done: list[bytes] = []
        self._small: list[bytes] = []
        self._small_size = 0
        self.size = 0

    def add(self, piece: bytes) -> None:
        self.size += len(piece)
        if len(piece) >= _SMALL and not self._small:
            self._done.append(piece)
            return
        self._small.append(piece)
        self._small_size += len(piece)
        if self._small_size >= _BLOCK:
            self._join()

    def all(self) -> list[bytes]:
        if self._small:
            self._join()
        return self._done

    def _join(self) -> None:
        self._done.append(b"".join(self._small))
        self._small, self._small_size = [], 0
