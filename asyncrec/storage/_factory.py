"""`StorageFactory`, which a plugin returns from the hook ``asyncrec_storage_factories``. Cheap to import."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncrec.storage._base import Storage


@dataclass(frozen=True)
class StorageFactory:
    """A backend that a plugin provides: a name, its schemes, and a function that opens a storage.

    Attributes:
        name: the name shown to users, e.g. ``"s3"``.
        schemes: the URL schemes that the backend serves, e.g. ``("s3", "s3a")``; ``""`` stands for paths without a
            scheme.
        open: ``open(url, **options)`` returns an async context manager that yields the `Storage` rooted at ``url``.
            Heavy imports belong in this function. Options are plain values that can be passed to other processes.
        backends: the event loops on which the backend runs.
    """

    name: str
    schemes: Iterable[str]
    open: Callable[..., AbstractAsyncContextManager[Storage]]
    backends: frozenset[str] = frozenset({"asyncio", "trio"})
