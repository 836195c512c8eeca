"""A plugin gives a `StorageFactory` to the hook ``asyncrec_storage_factories``. Nothing heavy is imported here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncrec.storage._base import Storage


@dataclass(frozen=True)
class StorageFactory:
    """A backend as a plugin brings it: a name, its schemes, and how to open a storage of it.

    Attributes:
        name: shown to people, e.g. ``"s3"``.
        schemes: of the URLs it answers to, e.g. ``("s3", "s3a")``; ``""`` is a path without a scheme.
        open: ``open(url, **options)`` gives a context in which the `Storage` rooted at ``url`` is usable; heavy imports
            belong inside it. Options are plain values, so that other processes can open their own.
        backends: the event loops it runs on.
    """

    name: str
    schemes: Iterable[str]
    open: Callable[..., AbstractAsyncContextManager[Storage]]
    backends: frozenset[str] = frozenset({"asyncio", "trio"})
