"""Stores for tests of whole writers. Tests can open a store, make it fail, and inspect it without the library.

S3 is moto behind the plugin's proxy. GCS is the plugin's strict fake. Both count requests, and fail them on demand.
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
"""The fate of the k-th request, and in some cases of all later ones.

- ``refused``: the request gets a 403, which is final;
- ``down``: it and all later requests get a 500, and have no effect;
- ``lost``: it and all later requests get a 500, but take effect;
- ``once``, ``lost once``: the same, but for this request alone;
- ``cut once``: the request takes effect, but the connection breaks before the response;
- ``silent``: it and all later requests get no response.
"""


class Place(ABC):
    """A store, initially empty.

    Attributes:
        name: the name, for messages.
        url: the URL of the folder to which the tests write.
        options: the storage options, with chunks so small that even small objects have several.
        chunk: the size of a chunk in bytes.
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
        """The number of requests since the last `calm`."""

    @abstractmethod
    def calm(self) -> None:
        """Stop all faults, and count requests from 0 again."""

    @abstractmethod
    def chaos(self, seed: int) -> None:
        """Fail one request in five: 5% with a 5xx, 10% throttled, others with resets, stalls or truncated bodies."""

    @abstractmethod
    def outages(self, seed: int) -> None:
        """Fail all requests for a while, again and again."""

    @abstractmethod
    def fail(self, k: int, how: Failing) -> None:
        """Fail the ``k``-th request, counted from 0, and for some values of ``how`` also all later ones."""

    @abstractmethod
    def when(self, k: int, call: Callable[[], object]) -> None:
        """Call a function in another thread when the ``k``-th request arrives, counted from 0."""

    @abstractmethod
    def objects(self) -> dict[str, bytes]:
        """Return all visible objects below `url`."""

    @abstractmethod
    def unfinished(self) -> list[str]:
        """Return the uploads that are neither completed nor aborted, and that a client can still reach."""

    @property
    @abstractmethod
    def busy(self) -> int:
        """The number of requests in progress."""

    @property
    @abstractmethod
    def connections(self) -> int:
        """The number of open connections, including idle ones."""


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
    """A schedule of outages of 60 to 80 requests each. The first is early; about 150 requests separate the others.

    With about a dozen concurrent requests of three attempts each, at least one request exhausts its attempts during
    each outage.
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
