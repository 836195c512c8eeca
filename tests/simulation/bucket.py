"""A simulated object store, which may respond late or never, or fail after a request took effect. See also `store`."""

from __future__ import annotations

import contextlib
import itertools
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import anyio
from crc32c import crc32c

from asyncrec.errors import ObjectExistsError, ObjectNotFoundError, StorageError, TransientStorageError
from asyncrec.storage._base import ObjectInfo

from .process import PROCESS, Killed, Process

__all__ = ["SCHEME", "Bucket", "Stored"]

SCHEME = "sim"
# Matches the names of shards, their indexes and their keys. Single files are never damaged, because their writer would
# get an error, and no other copy of their records would exist.
_OF_A_SHARD = re.compile(r"-[0-9]{5,}\.tfrecord")


@dataclass(frozen=True, slots=True)
class Stored:
    data: bytes
    info: ObjectInfo


class Cut(list[Any]):
    """A truncated page of a listing: iterating over it raises an error after the first entries."""

    def __init__(self, page: list[Any], what: str) -> None:
        super().__init__(page[: len(page) // 2])
        self._what = what

    def __iter__(self) -> Iterator[Any]:
        yield from super().__iter__()
        raise TransientStorageError(self._what)


class Bucket:
    """The objects of the store, and its faults.

    Attributes:
        failing: the share of requests that fail.
        down_until: the time until which all requests fail.
        parts: the size of a part in bytes.
        page: the number of keys on one page of a listing.
        short: the share of blocks that are shorter than they could be.
        lists_fail: the share of listing pages that fail in addition to ``failing``: with an error, with a response
            that is not a listing, or with a truncated page.
        damaging: the share of shards that are published without their last byte.
        damaged: the keys of the shards damaged in this way.
        whole_seconds: whether the times of objects are rounded down to seconds.
        lost: whether a publication may take effect even if its response is an error.
        late: whether a publication may also take effect up to a minute after an error.
    """

    def __init__(self, loop: Any, rng: random.Random, *, epoch: float) -> None:
        self.objects: dict[str, Stored] = {}
        self.unfinished: dict[str, Any] = {}
        self.failing = 0.0
        self.down_until = 0.0
        self.parts = 1 << 20
        self.lax = False
        self.late = False
        self.short = 0.0
        self.lists_fail = 0.0
        self.damaging = 0.0
        self.damaged: list[str] = []
        self.whole_seconds = False
        self.lost = True
        self.checksums = True
        self.latency = rng.choice((0.0, 0.001, 0.05, 0.5))
        self.page = rng.choice((3, 1000, 1000))
        self.faults = 0
        self.on_publish: Callable[[Process, str], None] = lambda process, what: None
        self.on_removal: Callable[[Process, str], None] = lambda process, what: None
        self._loop = loop
        self._rng = rng
        self._epoch = epoch
        self._versions = itertools.count(1)
        self._flying: list[tuple[Process, Callable[[], object]]] = []

    def killed(self, process: Process) -> None:
        """Handle the death of a client: each of its requests in transit is lost or takes effect later."""
        for owner, effect in list(self._flying):
            if owner is process and self._rng.random() < 0.5:
                self._land_later(effect)
        self._flying = [(owner, effect) for owner, effect in self._flying if owner is not process]

    def publish(self, key: str, data: bytes, *, exclusive: bool) -> ObjectInfo:
        if exclusive and key in self.objects:
            raise ObjectExistsError(
                f"{SCHEME}://bucket/{key}: the object already exists, but was to be created exclusively"
            )
        if self.damaging and _OF_A_SHARD.search(key) and self._rng.random() < self.damaging:
            self.faults += 1
            data = data[:-1]
            self.damaged.append(key)
        now = self._epoch + self._loop.now
        modified = datetime.fromtimestamp(int(now) if self.whole_seconds else now, UTC)
        checksum = crc32c(data) if self.checksums else None
        info = ObjectInfo(key, len(data), f"v{next(self._versions)}", checksum, modified)
        self.objects[key] = Stored(data, info)
        return info

    async def request(self, what: str, effect: Callable[[], Any]) -> Any:
        """Make one request: simulate its transmission, its effect, and the transmission of the response."""
        process = PROCESS.get()
        if process is None or process.dead:
            raise Killed
        flight = (process, effect)
        fate = self._fate(what)
        self._loop.log.note("store", what, fate)
        if what.startswith("publish "):
            self.on_publish(process, what)
        self._flying.append(flight)
        try:
            await self._travel()
            while self._loop.now < self.down_until:
                await anyio.sleep(min(20.0, self.down_until - self._loop.now))
                raise TransientStorageError(f"{what}: the store is down")
        finally:
            if not process.dead and flight in self._flying:
                self._flying.remove(flight)
        if fate == "refused":
            raise StorageError(f"{what}: the store says that there is more, and not where it goes on")
        if fate == "strange":
            raise TransientStorageError(f"{what}: the answer is no list")
        if fate == "before":
            raise TransientStorageError(f"{what}: it failed")
        if fate == "late":
            self._land_later(effect)
            raise TransientStorageError(f"{what}: no answer came")
        result = effect()
        if fate == "cut":
            result = Cut(result, f"{what}: the list was cut")
        if what.startswith("delete "):
            self.on_removal(process, what)
        if self.latency:
            await self._travel()
        if fate == "after" or (self._loop.now < self.down_until and self.lost):
            raise TransientStorageError(f"{what}: the answer was lost")
        return result

    def _fate(self, what: str) -> str:
        if self.lists_fail and what.startswith(("list ", "uploads ")) and self._rng.random() < self.lists_fail:
            self.faults += 1
            return self._rng.choice(("before", "strange", "refused", *(["cut"] if what.startswith("list ") else [])))
        if self._rng.random() >= self.failing:
            return ""
        self.faults += 1
        if not what.startswith(("publish", "delete")):
            return self._rng.choice(("before", "after"))
        fates = ["before"]
        if self.lost or not what.startswith("publish"):
            fates.append("after")
        if self.late:
            fates.append("late")
        return self._rng.choice(fates)

    async def _travel(self) -> None:
        await anyio.sleep(self._rng.random() * self.latency if self.latency and self._rng.random() < 0.5 else 0.0)

    def _land_later(self, effect: Callable[[], object]) -> None:
        def land() -> None:
            with contextlib.suppress(ObjectExistsError, ObjectNotFoundError):
                effect()

        # This runs outside any process, because the one that sent the request may be dead.
        context = self._loop.nobody.copy()
        self._loop.call_later(self._rng.random() * 60.0, land, context=context)
