"""The options of a container and its client, validated before a storage is opened."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from asyncrec.errors import ArgumentValueError
from asyncrec.storage import redact, scheme_of
from asyncrec.storage.http import check_options

from .access import Access, access_of

__all__ = ["MIB", "Options"]

MIB = 1 << 20
# Smaller chunks would need too many requests, and Azure rejects larger blocks.
_LEAST_CHUNK, _MOST_CHUNK = 64 << 10, 4_000 * MIB
_OF_ACCESS: Mapping[str, Any] = {
    "account": str | None,
    "account_key": str | None,
    "anonymous": bool,
    "ca_file": str | os.PathLike | None,
    "client_id": str | None,
    "connection_string": str | None,
    "endpoint": str | None,
    "sas_token": str | None,
}


@dataclass(frozen=True, kw_only=True)
class Options:
    """All options of one storage.

    Attributes:
        container: the container's name, from the URL.
        root: the URL up to the container, including the account if the URL names it.
        access: the account and its credentials. See `access_of`.
        chunk_size: the number of bytes per block. With 8 MiB, an object can have 390 GiB, because Azure allows 50,000
            blocks.
        max_concurrency: the maximum number of blocks being copied or in transit, for all sinks of the storage. By
            default, they take 32 MiB.
    """

    container: str
    root: str
    access: Access
    chunk_size: int = 8 * MIB
    max_concurrency: int = 4

    def __post_init__(self) -> None:
        if not _LEAST_CHUNK <= self.chunk_size <= _MOST_CHUNK:
            raise ArgumentValueError(f"chunk_size must be from 64 KiB to 4,000 MiB, not {self.chunk_size:,}")
        if self.max_concurrency < 1:
            raise ArgumentValueError(f"max_concurrency must be at least 1, not {self.max_concurrency}")

    @classmethod
    def of(cls, url: str, **options: Any) -> tuple[Options, str]:
        """Return the options for a URL, and the URL's prefix (``""`` for the container itself).

        Raises:
            ValueError: the URL or an option is invalid. The message does not contain credentials.
            TypeError: an option is unknown or has the wrong type.
        """
        check_options("azure", options, {**_OF_ACCESS, "chunk_size": int, "max_concurrency": int})
        scheme = scheme_of(url)
        if not scheme or not url.startswith("://", len(scheme)):
            raise ArgumentValueError(f"{redact(url)}: the URL must have the form az://container/prefix")
        place, _, prefix = url[len(scheme) + 3 :].partition("/")
        container, at, host = place.partition("@")
        if ":" in container or (at and (scheme == "az" or not host)):
            raise ArgumentValueError(
                f"{redact(url)}: the URL must have the form az://container/prefix or "
                "abfs://container@account.dfs.core.windows.net/prefix; pass credentials as options"
            )
        if not container:
            raise ArgumentValueError(f"{redact(url)}: the URL names no container; write az://container/prefix")
        access = access_of(host=host, **{name: options.pop(name) for name in _OF_ACCESS if name in options})
        return cls(container=container, root=f"{scheme}://{place}", access=access, **options), prefix.strip("/")
