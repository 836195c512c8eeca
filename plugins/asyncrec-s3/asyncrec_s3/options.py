"""The options of a bucket and its client, validated before a storage is opened.

The AWS SDK looks up missing options in its environment variables, its configuration files, or the role of the machine.
It refreshes such credentials before they expire. Credentials passed as options are never refreshed.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields, replace
from typing import Any, get_type_hints
from urllib.parse import urlsplit

from asyncrec.errors import ArgumentValueError
from asyncrec.storage import redact, scheme_of
from asyncrec.storage.http import check_options

from .parts import MIB, MIN_PART

__all__ = ["ClientOptions", "Options"]

# In order of precedence. tensorboardX and TensorFlow's S3 file system use the last name.
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "S3_ENDPOINT")


@dataclass(frozen=True, kw_only=True)
class ClientOptions:
    """The options of one client. Storages with equal client options share their connections.

    Attributes:
        endpoint_url: the endpoint of an S3-compatible store. By default, the first of ``AWS_ENDPOINT_URL_S3``,
            ``AWS_ENDPOINT_URL`` and ``S3_ENDPOINT`` that is set, or else AWS.
        region: the region; by default, that of the SDK's configuration.
        profile: a profile in the SDK's configuration files.
        aws_access_key_id, aws_secret_access_key, aws_session_token: the credentials; by default, those that the SDK
            finds.
        anonymous: whether to send unsigned requests, for public buckets.
        addressing_style: ``"path"``, ``"virtual"`` or ``"auto"`` (path if an endpoint is set, virtual for AWS).
        payload_signing: whether the signature covers a hash of every body, for stores that require it. By default, it
            covers only the body's checksum, because a second hash would double the work.
        verify: `False` to accept any certificate, or the path of a bundle of authorities.
        connect_timeout: the seconds after which connecting fails.
        read_timeout: the seconds without a byte after which a request fails and is retried.
        max_connections: the maximum number of connections. 64 is enough for 16 interleaved sources with their
            read-ahead and for uploads. Idle sources use at most a quarter of the connections.
    """

    endpoint_url: str | None = None
    region: str | None = None
    profile: str | None = None
    aws_access_key_id: str | None = None
    aws_secret_access_key: str | None = None
    aws_session_token: str | None = None
    anonymous: bool = False
    addressing_style: str = "auto"
    payload_signing: bool = False
    verify: bool | str = True
    connect_timeout: float = 10.0
    read_timeout: float = 60.0
    max_connections: int = 64

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: not shown, because it may hold credentials>"


@dataclass(frozen=True, kw_only=True, repr=False)
class Options(ClientOptions):
    """All options of one storage.

    Attributes:
        bucket, prefix: the bucket and the prefix, from the URL. The prefix is empty or ends with ``/``.
        chunk_size: the size of a part in bytes, at least 5 MiB. Smaller parts need more requests, and larger parts need
            more memory. The size doubles every 900 parts, so that an object can reach S3's maximum of 5 TiB.
        max_concurrency: the maximum number of parts in transit for all sinks of this storage. By default, they take 32
            MiB. When parts have grown, fewer (but at least one) are in transit.
        checksum: ``"crc32c"`` for each part and for the whole object, which the store keeps, or ``"md5"`` for each
            part, which every store supports but which takes thirty times as long. ``"auto"`` means CRC32C for AWS. For
            other endpoints, both are sent with the first parts, and then only CRC32C if the store verifies it.
    """

    bucket: str = ""
    prefix: str = ""
    chunk_size: int = 8 * MIB
    max_concurrency: int = 4
    checksum: str = "auto"

    def __post_init__(self) -> None:
        # Error messages never contain credentials.
        if not self.bucket:
            raise ArgumentValueError("the URL names no bucket: write s3://bucket/prefix")
        if (self.aws_access_key_id is None) != (self.aws_secret_access_key is None):
            raise ArgumentValueError("aws_access_key_id and aws_secret_access_key must be passed together")
        if self.aws_session_token is not None and self.aws_access_key_id is None:
            raise ArgumentValueError("aws_session_token requires aws_access_key_id and aws_secret_access_key")
        if self.anonymous and (self.aws_access_key_id or self.profile):
            raise ArgumentValueError("anonymous=True cannot be combined with credentials or a profile")
        if self.endpoint_url is not None:
            parts = urlsplit(self.endpoint_url)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ArgumentValueError("endpoint_url must begin with http:// or https:// and name a host")
            if parts.username is not None:
                raise ArgumentValueError("endpoint_url must not contain credentials; pass them as options")
        if self.addressing_style not in ("auto", "path", "virtual"):
            raise ArgumentValueError(
                f"addressing_style must be 'auto', 'path' or 'virtual', not {self.addressing_style!r}"
            )
        if self.checksum not in ("auto", "crc32c", "md5"):
            raise ArgumentValueError(f"checksum must be 'auto', 'crc32c' or 'md5', not {self.checksum!r}")
        if self.chunk_size < MIN_PART:
            raise ArgumentValueError(f"chunk_size must be at least 5 MiB, S3's smallest part, not {self.chunk_size:,}")
        if self.max_concurrency < 1 or self.max_connections <= self.max_concurrency:
            raise ArgumentValueError(
                "max_concurrency must be at least 1, and max_connections must be larger than max_concurrency"
            )

    @classmethod
    def of(cls, url: str, **options: Any) -> Options:
        """Return the options for a URL. The default endpoint is taken from the environment.

        Raises:
            ValueError: the URL or an option is invalid. The message does not contain credentials.
            TypeError: an option is unknown or has the wrong type.
        """
        types = {name: kind for name, kind in get_type_hints(cls).items() if name not in ("bucket", "prefix")}
        check_options("s3", options, types | {"connect_timeout": float | int, "read_timeout": float | int})
        if not scheme_of(url) or not url[len(scheme_of(url)) :].startswith("://"):
            raise ArgumentValueError(f"{redact(url)}: the URL must have the form s3://bucket/prefix")
        bucket, _, prefix = url[len(scheme_of(url)) + 3 :].partition("/")
        if "@" in bucket:
            raise ArgumentValueError(f"{redact(url)}: a URL must not contain credentials; pass them as options")
        prefix = prefix.rstrip("/")
        result = cls(bucket=bucket, prefix=f"{prefix}/" if prefix else "", **options)
        if result.endpoint_url is None:
            result = replace(result, endpoint_url=_endpoint_of_environment())
        return result

    @property
    def root(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")

    def client(self) -> ClientOptions:
        return ClientOptions(**{field.name: getattr(self, field.name) for field in fields(ClientOptions)})


def _endpoint_of_environment() -> str | None:
    if os.environ.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "").lower() == "true":
        return None
    for name in _ENDPOINTS:
        if value := os.environ.get(name):
            return value if "://" in value else f"https://{value}"
    return None
