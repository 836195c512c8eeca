"""The hook: which schemes, and how to open one. Importing it costs nothing; the SDK is imported on opening."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any

from asyncrec.storage.base import Storage, StorageFactory
from asyncrec.storage.hookspecs import hookimpl

__all__ = ["asyncrec_storage_factories", "open_s3"]


def open_s3(url: str, **options: Any) -> AbstractAsyncContextManager[Storage]:
    """``s3://bucket`` or ``s3://bucket/prefix``, with the fields of `asyncrec_s3.options.Options` as options.

    Raises:
        ValueError, TypeError: the URL or an option cannot be.
        StoragePermissionError: on entering, when the profile or the credentials asked for are not there.
    """
    from .options import Options
    from .storage import S3Storage

    return S3Storage(Options.of(url, **options))


@hookimpl
def asyncrec_storage_factories() -> Iterable[StorageFactory]:
    return [StorageFactory(name="s3", schemes=("s3", "s3a"), open=open_s3)]
