"""The plugin's hook, which returns its storage factory. Importing this module is cheap.

The SDK is imported when a storage is first entered, in a worker thread, because the import takes 0.3 s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any

from asyncrec.plugins import hookimpl
from asyncrec.storage import StorageFactory

if TYPE_CHECKING:
    from asyncrec.storage import Storage

    from .options import Options


def open_s3(url: str, **options: Any) -> AbstractAsyncContextManager[Storage]:
    """Open ``s3://bucket`` or ``s3://bucket/prefix``, with the fields of `asyncrec_s3.options.Options` as options.

    Raises:
        ValueError, TypeError: the URL or an option is invalid.
        StoragePermissionError: on entering, if the profile or its credentials do not exist.
        StorageError: on entering, if the certificate file of ``verify`` or ``AWS_CA_BUNDLE`` is not usable.
    """
    from .options import Options

    return _Opening(Options.of(url, **options))


class _Opening:
    """A context manager that imports and opens an `S3Storage` on entering."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._storage: AbstractAsyncContextManager[Storage] | None = None

    async def __aenter__(self) -> Storage:
        if self._storage is not None:
            raise RuntimeError("a storage can only be entered once; open a new one")
        from asyncrec.storage import in_thread

        storage_class = await in_thread(_load)
        self._storage = storage_class(self._options)
        return await self._storage.__aenter__()

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        assert self._storage is not None, "the storage was entered"
        return await self._storage.__aexit__(exc_type, exc, traceback)


def _load() -> Callable[[Options], AbstractAsyncContextManager[Storage]]:
    from .storage import S3Storage

    return S3Storage


@hookimpl
def asyncrec_storage_factories() -> Iterable[StorageFactory]:
    return [StorageFactory(name="s3", schemes=("s3", "s3a"), open=open_s3)]
