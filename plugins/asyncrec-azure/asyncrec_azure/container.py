"""`Container` sends requests with translated errors, and holds the state that its sinks and sources share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

import anyio
from azure.core import MatchConditions
from azure.core.exceptions import AzureError
from azure.storage.blob.aio import BlobClient

from asyncrec.errors import ObjectNotFoundError, StorageError
from asyncrec.storage import DEFAULT, ObjectInfo, RetryPolicy, TaskScope, retrying
from asyncrec.storage.http import PartBuffers, PartSlots, crc64nvme

from .client import Client
from .errors import Condition, translate
from .options import Options

T = TypeVar("T")

# Metadata keys of an object: the id of the upload that created it, to recognise the object if a response was lost, and
# the checksum of its content, because Azure does not keep one.
UPLOAD, CRC32C = "asyncrec_upload", "asyncrec_crc32c"


@dataclass(frozen=True, slots=True)
class Found:
    """The store's description of an object. ``upload`` is the id of the asyncrec upload that created it, or `None`."""

    info: ObjectInfo
    upload: str | None


class Container:
    """A container, with slots for the blocks of all sinks that write to it.

    Attributes:
        slots: one slot for each block being copied or in transit, to bound the memory of all sinks together.
        tasks: the tasks that send blocks.
        has_crc64: whether asyncrec can compute a CRC-64, and the store has verified it in every response so far.
    """

    def __init__(self, client: Client, options: Options, tasks: TaskScope, policy: RetryPolicy = DEFAULT) -> None:
        self.root = options.root
        self.chunk_size = options.chunk_size
        self.policy = policy
        self.slots = PartSlots(options.max_concurrency, options.chunk_size)
        self.buffers = PartBuffers(options.chunk_size)
        # Threads for copies and checksums have their own limit, so that the user's blocking work cannot starve uploads.
        self.threads = anyio.CapacityLimiter(options.max_concurrency)
        self.tasks = tasks
        self.has_crc64 = crc64nvme(b"") is not None
        self.sdk = client.container(options.container)
        self._client = client

    def shown(self, key: str) -> str:
        return f"{self.root}/{key}"

    def blob(self, key: str) -> BlobClient:
        return self.sdk.get_blob_client(key)

    async def once(self, operation: Callable[[], Awaitable[T]], what: str, *, condition: Condition = "") -> T:
        """Call the SDK, without retries.

        Raises:
            StorageError: the SDK's error, translated and not chained to the original.
        """
        secrets, sent = self._client.secrets, self._client.sent  # raises an error in a forked child
        try:
            return await operation()
        except StorageError as error:  # from the transport
            failure = StorageError(f"{what}: {error}")
        except (AzureError, OSError, TimeoutError, ValueError, TypeError, KeyError, AttributeError) as error:
            failure = translate(error, what, condition=condition, secrets=secrets, sent=sent)
        raise failure

    async def repeat(self, operation: Callable[[], Awaitable[T]], what: str, *, condition: Condition = "") -> T:
        """Call the SDK and retry transient failures. The call must be safe to repeat."""

        async def attempt() -> T:
            return await self.once(operation, what, condition=condition)

        return await retrying(attempt, what=what, policy=self.policy)

    async def look(self, key: str, blob: BlobClient, what: str, policy: RetryPolicy | None = None) -> Found:
        """Return the store's description of an object.

        Raises:
            ObjectNotFoundError: the object does not exist.
            StoragePermissionError: the store denies access.
            TransientStorageError: every attempt failed.
        """

        async def attempt() -> Found:
            return await self.once(ask, what)

        async def ask() -> Found:
            found: Any = await blob.get_blob_properties()
            metadata = found.metadata or {}
            info = info_of(key, found.size, found.etag, found.last_modified, metadata)
            return Found(info, metadata.get(UPLOAD))

        return await retrying(attempt, what=what, policy=policy or self.policy)

    async def remove(self, key: str, *, etag: str | None = None) -> None:
        """Delete an object (or only its version ``etag``). Do nothing if the object does not exist."""
        condition: dict[str, Any] = {}
        if etag is not None:
            condition = {"etag": f'"{etag}"', "match_condition": MatchConditions.IfNotModified}
        blob = self.blob(key)
        what = f"{self.shown(key)}: deleting"
        try:
            await self.repeat(lambda: blob.delete_blob(delete_snapshots="include", **condition), what)
        except ObjectNotFoundError:
            return


def info_of(key: str, size: object, etag: object, modified: object, metadata: Mapping[str, str]) -> ObjectInfo:
    """Return the `ObjectInfo` for the store's description of an object.

    Raises:
        ValueError: the values do not describe an object, because the response is not from Azure.
    """
    if not isinstance(size, int) or not isinstance(etag, str) or not etag or not isinstance(modified, datetime):
        raise ValueError("the response does not describe an object")
    crc = metadata.get(CRC32C, "")
    return ObjectInfo(key, size, etag.strip('"'), _crc(crc), modified)


def _crc(text: str) -> int | None:
    try:
        return int(text, 16) if len(text) == 8 else None
    except ValueError:
        return None
