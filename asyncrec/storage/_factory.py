"""`StorageFactory`, which a plugin returns from the hook ``asyncrec_storage_factories``. It imports nothing heavy."""

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
        schemes: the schemes of the URLs that the backend serves, e.g. ``("s3", "s3a")``; ``""`` means a path without a
            scheme.
        open: ``open(url, **options)`` returns a context in which the `Storage` rooted at ``url`` can be used; heavy
            imports belong inside this function. Options are plain values, so that other processes can open their own
            storages.
        backends: the event loops on which the backend runs.
    """

    name: str
    schemes: Iterable[str]
    open: Callable[..., AbstractAsyncContextManager[Storage]]
    backends: frozenset[str] = frozenset({"asyncio", "trio"})
