"""The options of a bucket and its client, validated before a storage is opened."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from asyncrec.errors import ArgumentValueError
from asyncrec.storage import redact, scheme_of
from asyncrec.storage.http import check_options

from .protocol import UNIT

__all__ = ["Access", "Options"]

_DEFAULT_ENDPOINT = "https://storage.googleapis.com"
_OF_ACCESS: Mapping[str, Any] = {
    "endpoint": str | None,
    "token": str | None,
    "service_file": str | os.PathLike | None,
    "anonymous": bool,
}


@dataclass(frozen=True, kw_only=True)
class Access:
    """The options of one client. Storages with equal access options share their connections.

    Attributes:
        endpoint: the scheme, the host and an optional path, without a trailing slash.
        emulator: whether the endpoint is from ``STORAGE_EMULATOR_HOST``. If so, no credentials are looked up, and any
            certificate is accepted, as is the convention.
        token: an OAuth access token, which is never refreshed.
        service_file: the path of a credentials file; `None` to look up credentials as Google's libraries do.
        anonymous: whether to send no credentials.
    """

    endpoint: str
    emulator: bool = False
    token: str | None = field(default=None, repr=False)
    service_file: str | None = None
    anonymous: bool = False


@dataclass(frozen=True, kw_only=True)
class Options:
    """All options of one storage.

    Attributes:
        bucket: the bucket's name, from the URL.
        access: the access options, from the options ``endpoint`` (by default the environment variable
            ``STORAGE_EMULATOR_HOST``, or Google's endpoint), ``token``, ``service_file`` (by default
            ``GOOGLE_APPLICATION_CREDENTIALS``, gcloud's default credentials, or the metadata server) and ``anonymous``
            (for public buckets).
        chunk_size: the number of bytes per request, a multiple of 256 KiB. With 1 MiB, an upload takes three times as
            long as with 8 MiB, the default. Larger chunks need more memory and are not faster.
        max_concurrency: the maximum number of chunks being copied or in transit, for all sinks of the storage. By
            default, they take 25 MiB, so with up to 28 open sinks, each of which retains 256 KiB, the total is within
            32 MiB.
    """

    bucket: str
    access: Access
    chunk_size: int = 32 * UNIT
    max_concurrency: int = 3

    def __post_init__(self) -> None:
        if self.chunk_size < UNIT or self.chunk_size % UNIT:
            raise ArgumentValueError(
                f"chunk_size must be a multiple of 256 KiB, as GCS requires, not {self.chunk_size:,}"
            )
        if self.max_concurrency < 1:
            raise ArgumentValueError(f"max_concurrency must be at least 1, not {self.max_concurrency}")

    @classmethod
    def of(cls, url: str, **options: Any) -> tuple[Options, str]:
        """Return the options for a URL, and the URL's prefix (``""`` for the bucket itself).

        Raises:
            ValueError: the URL or an option is invalid. The message does not contain credentials.
            TypeError: an option is unknown or has the wrong type.
        """
        check_options("gcs", options, {**_OF_ACCESS, "chunk_size": int, "max_concurrency": int})
        scheme = scheme_of(url)
        if not scheme or not url.startswith("://", len(scheme)):
            raise ArgumentValueError(f"{redact(url)}: the URL must have the form gs://bucket/prefix")
        bucket, _, prefix = url[len(scheme) + 3 :].partition("/")
        if "@" in bucket:
            raise ArgumentValueError(f"{redact(url)}: a URL must not contain credentials; pass them as options")
        if not bucket:
            raise ArgumentValueError(f"{redact(url)}: the URL names no bucket; write gs://bucket/prefix")
        access = _access(**{name: options.pop(name) for name in _OF_ACCESS.keys() & options})
        return cls(bucket=bucket, access=access, **options), prefix.strip("/")


def _access(
    *,
    endpoint: str | None = None,
    token: str | None = None,
    service_file: str | os.PathLike[str] | None = None,
    anonymous: bool = False,
) -> Access:
    if (token is not None) + (service_file is not None) + anonymous > 1:
        raise ArgumentValueError("token, service_file and anonymous cannot be combined")
    if token is not None and (not token or not token.isascii() or not token.isprintable() or " " in token):
        raise ArgumentValueError(
            "token must be an OAuth access token: printable characters without spaces"
        )  # the token is not shown
    emulator = os.environ.get("STORAGE_EMULATOR_HOST") if endpoint is None else None
    address = endpoint or emulator or _DEFAULT_ENDPOINT
    if emulator and "://" not in emulator:
        address = f"http://{emulator}"
    parts = urlsplit(address)
    name = "STORAGE_EMULATOR_HOST" if emulator else "endpoint"
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ArgumentValueError(f"{name} must begin with http:// or https://, name a host, and have no query")
    if parts.username is not None:  # a password requires a username
        raise ArgumentValueError(f"{name} must not contain credentials; pass them as options")
    source = "service_file"
    if service_file is None and token is None and not anonymous:
        source = "GOOGLE_APPLICATION_CREDENTIALS"
        service_file = os.environ.get(source) or None
    if service_file is not None and "{" in os.fspath(service_file):
        raise ArgumentValueError(
            f"{source} must be the path of a file of credentials, not its content"
        )  # the content is not shown
    return Access(
        endpoint=address.rstrip("/"),
        emulator=bool(emulator),
        token=token,
        service_file=None if service_file is None else os.fspath(service_file),
        anonymous=anonymous,
    )
