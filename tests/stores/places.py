"""The stores as tests of whole writers see them: how to open one, to make it fail, and to look past the library.

S3 is moto behind the plugin's proxy, GCS the plugin's strict fake; both count their requests, and fail them as told.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal

import fake_gcs
import s3_proxy
from s3_store import Store

import asyncrec
from asyncrec.storage._base import Storage

__all__ = ["Failing", "GcsPlace", "Place", "S3Place"]

Failing = Literal["refused", "down", "lost", "once", "lost once", "cut once", "silent"]
"""What happens from the k-th request on, or to it alone.

- ``refused``: it alone is answered 403, for good;
- ``down``: it and all later ones are answered 500, without effect;
- ``lost``: it and all later ones take effect, and are answered 500;
- ``once``, ``lost once``: the same, it alone;
- ``cut once``: the connection breaks after its effect;
- ``silent``: it and all later ones are never answered.
"""


class Place(ABC):
    """One store, empty at first.

    Attributes:
        name: for people.
        url: of the folder the tests write to.
        options: to open it with; chunks are small, so that small objects have several.
        chunk: bytes of one.
    """

    name: str
    url: str
    options: dict[str, Any]
    chunk: int

    def open(self, **options: Any) -> AbstractAsyncContextManager[Storage]:
        return asyncrec.open_storage(self.url, **(self.options | options))

    @property
    @abstractmethod
    def requests(self) -> int:
        """How many there were since the last `calm`."""

    @abstractmethod
    def calm(self) -> None:
        """From now on nothing fails; requests are counted from 0."""

    @abstractmethod
    def chaos(self, seed: int) -> None:
        """One request in five goes wrong: 5% of 5xx, 10% throttled, and resets, stalls, bodies cut short."""

    @abstractmethod
    def outages(self, seed: int) -> None:
        """Every now and then nothing works for a while."""

    @abstractmethod
    def fail(self, k: int, how: Failing) -> None:
        """From now on, or once, at the ``k``-th request, counted from 0."""

    @abstractmethod
    def when(self, k: int, call: Callable[[], object]) -> None:
        """Call it, in another thread, as the ``k``-th request comes, counted from 0."""

    @abstractmethod
    def objects(self) -> dict[str, bytes]:
        """Whatever is visible below `url`."""

    @abstractmethod
    def unfinished(self) -> list[str]:
        """Uploads begun and neither ended nor out of anybody's reach."""

    @property
    @abstractmethod
    def busy(self) -> int:
        """Requests under way."""

    @property
    @abstractmethod
    def connections(self) -> int:
        """Connections that are open, idle ones too."""


class S3Place(Place):
    name = "s3"
    chunk = 64 << 10

    def __init__(self, store: Store, proxy: s3_proxy.Proxy, prefix: str) -> None:
        self._store, self._proxy, self._prefix = store, proxy, prefix
        self.url = f"s3://{store.bucket}/{prefix}"
        self.options = {"endpoint_url": proxy.endpoint, "chunk_size": self.chunk, "read_timeout": 0.5}

    @property
    def requests(self) -> int:
        return len(self._proxy.requests)

    def calm(self) -> None:
        self._proxy.reset()

    def chaos(self, seed: int) -> None:
        self._proxy.plan = s3_proxy.chaos(seed)

    def outages(self, seed: int) -> None:
        down = _Outages(seed)
        self._proxy.plan = lambda request: "500" if down(request.number) else None

    def fail(self, k: int, how: Failing) -> None:
        fault = {
            "refused": "403",
            "down": "500",
            "lost": "500-after",
            "once": "500",
            "lost once": "500-after",
            "silent": "stall",
        }.get(how, "reset-after")
        for_good = how in ("down", "lost", "silent")
        self._proxy.plan = lambda request: fault if request.number == k or (for_good and request.number > k) else None

    def when(self, k: int, call: Callable[[], object]) -> None:
        def plan(request: s3_proxy.Request) -> None:
            if request.number == k:
                call()

        self._proxy.plan = plan

    def objects(self) -> dict[str, bytes]:
        root = f"{self._prefix}/"
        return {key[len(root) :]: data for key, data in self._store.everything(root).items()}

    def unfinished(self) -> list[str]:
        return self._store.unfinished(self._prefix)

    @property
    def busy(self) -> int:
        return self._proxy.in_flight

    @property
    def connections(self) -> int:
        return self._proxy.connections


class GcsPlace(Place):
    name = "gcs"
    chunk = fake_gcs.UNIT

    def __init__(self, server: fake_gcs.FakeGcs, prefix: str) -> None:
        self._server, self._prefix = server, prefix
        self.url = f"gs://bucket/{prefix}"
        self.options = {"endpoint": server.url, "anonymous": True, "chunk_size": self.chunk}

    @property
    def requests(self) -> int:
        return len(self._server.log)

    def calm(self) -> None:
        self._server.plan = fake_gcs.nothing
        self._server.log.clear()

    def chaos(self, seed: int) -> None:
        self._server.plan = fake_gcs.chaos(seed, stalls=0.005)

    def outages(self, seed: int) -> None:
        down = _Outages(seed)
        self._server.plan = lambda kind, n: fake_gcs.Fault("status", 500) if down(n) else None

    def fail(self, k: int, how: Failing) -> None:
        fault = {
            "refused": fake_gcs.Fault("status", 403),
            "down": fake_gcs.Fault("status", 500),
            "once": fake_gcs.Fault("status", 500),
            "cut once": fake_gcs.Fault("reset-after"),
            "silent": fake_gcs.Fault("stall"),
        }.get(how, fake_gcs.Fault("status-after", 500))
        for_good = how in ("down", "lost", "silent")
        # The fake counts from 1.
        self._server.plan = lambda kind, n: fault if n == k + 1 or (for_good and n > k) else None

    def when(self, k: int, call: Callable[[], object]) -> None:
        def plan(kind: str, n: int) -> None:
            if n == k + 1:
                call()

        self._server.plan = plan

    def objects(self) -> dict[str, bytes]:
        root = f"{self._prefix}/"
        return {
            name[len(root) :]: each.data for (_, name), each in self._server.objects.items() if name.startswith(root)
        }

    def unfinished(self) -> list[str]:
        return [name for name in self._server.left if name.startswith(self._prefix)]

    @property
    def busy(self) -> int:
        return self._server.busy

    @property
    def connections(self) -> int:
        return self._server.connections


class _Outages:
    """Whether the store is down at its n-th request: 60 to 80 at a time, first soon, then about every 200.

    With three attempts for each of some dozen requests at once, somebody's patience ends within that.
    """

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self._begin = self._draw.randrange(20, 40)
        self._end = self._begin + self._draw.randrange(60, 80)

    def __call__(self, n: int) -> bool:
        while n >= self._end:
            self._begin = self._end + self._draw.randrange(100, 200)
            self._end = self._begin + self._draw.randrange(60, 80)
        return n >= self._begin
