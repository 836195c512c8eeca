"""Clients, each shared by all storages on an event loop with the same endpoint, credentials and other client options.

Creating a client parses the SDK's model of the service and may request the machine's credentials. This runs in a worker
thread, because the first client takes up to 0.1 s. Later clients take a tenth of that, because the process keeps the
model. A client is closed when the last storage that uses it is closed.

A client belongs to the event loop on which it was opened, so storages on two loops have two clients.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import botocore
import sniffio
from aiobotocore.config import AioConfig
from aiobotocore.credentials import AioCredentials
from aiobotocore.httpxsession import HttpxSession
from botocore.exceptions import ClientError
from botocore.handlers import add_expect_header

from asyncrec.errors import StorageError, TransientStorageError
from asyncrec.storage.http import SharedClients, trusting

from .body import sign_in_thread
from .direct import DirectGets, show_sent
from .errors import translate
from .redaction import quieten, remember
from .sdk import Models, Session, SessionOnTrio, SharingSession, parse_date

if TYPE_CHECKING:
    from .options import ClientOptions


# The header that AWS and compatible stores send, and the header that moto sends.
_REQUEST_IDS = ("x-amz-request-id", "x-amzn-requestid")
_NOT_FOUND = 404


class Known:
    """The capabilities of a store, learnt from its responses, or known in advance for AWS.

    If responses disagree, because several servers share the endpoint, the weaker capability applies.

    Attributes:
        crc32c: whether the store verifies the CRC32C of a body; `None` while unknown.
        excludes_puts: whether the store honours the ``If-None-Match: *`` of a put; `None` while unknown.
        excludes_parts: whether the store also honours that condition when a multipart upload is completed, unlike Ceph
            16; `None` while unknown.
    """

    def __init__(self, *, is_aws: bool) -> None:
        self._is_aws = is_aws
        self.crc32c: bool | None = True if is_aws else None
        self.excludes_puts: bool | None = True if is_aws else None
        self.excludes_parts: bool | None = True if is_aws else None
        # The names of the requests whose successful responses contain a request id.
        self._numbered: set[str] = set()

    def learn_crc32c(self, compares: bool) -> None:
        """Record whether a response contained the CRC32C that was sent."""
        if not self._is_aws and self.crc32c is not False:
            self.crc32c = compares

    def learn_exclusion(self, *, puts: bool | None = None, parts: bool | None = None) -> None:
        """Record whether the store honoured a condition."""
        if puts is not None and self.excludes_puts is not False:
            self.excludes_puts = puts
        if parts is not None and self.excludes_parts is not False:
            self.excludes_parts = parts

    @property
    def numbers_requests(self) -> bool:
        """Whether the store's responses contain a request id, unlike those of a proxy."""
        return self._is_aws or bool(self._numbered)

    def check_answer(self, answer: Mapping[str, Any], request: str, what: str) -> None:
        """Check by its request id that a successful response to ``request`` is from the store.

        Only responses to the same request are compared, because older versions of SeaweedFS send ids in all responses
        except those to GET and HEAD.

        Raises:
            TransientStorageError: the response has no request id, although an earlier response to this request had one.
        """
        if _has_id(answer):
            self._numbered.add(request)
        elif self._is_aws or request in self._numbered:
            status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode")
            raise TransientStorageError(
                f"{what}: HTTP {status}: the response has no request id, so it is not from this store but perhaps "
                "from a proxy; if this persists, check endpoint_url and any proxy in between"
            )

    def check_origin(self, error: ClientError, what: str) -> None:
        """Check by its request id and its error code that a "not found" is from the store.

        A response to HEAD has no body, and so no code. For other responses without a code, the SDK gives the status.

        Raises:
            TransientStorageError: the response has no request id, although the store's responses do, or no code of S3.
        """
        answer: Mapping[str, Any] = error.response
        status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode")
        if status != _NOT_FOUND:
            return
        if self.numbers_requests and not _has_id(answer):
            raise TransientStorageError(
                f"{what}: HTTP {status}: the response has no request id, so it is not from this store but perhaps "
                "from a proxy"
            )
        code = str(answer.get("Error", {}).get("Code"))
        if error.operation_name != "HeadObject" and not code.startswith("NoSuch"):
            raise TransientStorageError(
                f"{what}: HTTP {status}: the response has no error code of S3 such as NoSuchKey, so it is not from a "
                "store but perhaps from a proxy; if this persists, check endpoint_url"
            )


def _has_id(answer: Mapping[str, Any]) -> bool:
    headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    return any(name in headers for name in _REQUEST_IDS)


# The SDK's model of S3, kept because parsing it takes 50 ms of processor time.
_loader: Any = None


class Connection:
    """A client and the capabilities of its store.

    Attributes:
        client: a client of aiobotocore, with the ``credentials`` that were passed or found. It does not retry, because
            the core does.
        is_aws: whether the endpoint belongs to AWS rather than a compatible store.
        known: the capabilities that the store's responses have revealed.
    """

    def __init__(self, client: Any, credentials: Any = None) -> None:
        self.client = client
        self._credentials = credentials
        self._gets: dict[str, DirectGets] = {}
        host = urlsplit(client.meta.endpoint_url).hostname or ""
        self.is_aws = re.search(r"\.(amazonaws\.com(\.cn)?|api\.aws|c2s\.ic\.gov|sc2s\.sgov\.gov)$", host) is not None
        self.known = Known(is_aws=self.is_aws)
        # If the store does not support "100 Continue", aiohttp would wait for that response forever.
        client.meta.events.unregister("before-call.s3", add_expect_header)
        client.meta.events.register("before-send.s3", _remember)
        client.meta.events.register("before-call.s3.GetObject", _ask_for_checksum)
        client.meta.events.register("before-send.s3.GetObject", show_sent)

    def gets(self, bucket: str) -> DirectGets:
        """Return the `DirectGets` of a bucket."""
        return self._gets.setdefault(bucket, DirectGets(self.client, self._credentials, bucket, _user_agent()))


def _ask_for_checksum(params: dict[str, Any], **_: Any) -> None:
    """Request the checksum of a whole object.

    If the SDK's own parameter were used, the SDK would also verify a CRC-32 or a SHA-256, on the loop.
    """
    if "Range" not in params["headers"]:
        params["headers"]["x-amz-checksum-mode"] = "ENABLED"


def _remember(request: Any, **_: Any) -> None:
    """Remember the credentials in a request, so that they can be removed from error messages and logs."""
    for name in ("X-Amz-Security-Token", "x-amz-s3session-token", "Authorization"):
        value = request.headers.get(name)
        value = value.decode() if isinstance(value, bytes) else value or ""
        if name == "Authorization":
            match = re.search(r"Credential=([^/,\s]+)", value)
            value = match[1] if match else ""
        remember(value)


_Key = tuple["ClientOptions", frozenset[tuple[str, str]]]


def connect(options: ClientOptions) -> AbstractAsyncContextManager[Connection]:
    """Return a context manager that yields a client with ``options``, shared on this event loop.

    Raises (on entering):
        StoragePermissionError: the profile does not exist, or the credentials are incomplete.
        StorageError: the file of certificate authorities does not exist or is invalid.
    """
    # The SDK reads the environment, so its variables are part of the client's key.
    return _CLIENTS.use(
        (options, frozenset((name, value) for name, value in os.environ.items() if name.startswith("AWS_")))
    )


async def _close(connection: Connection) -> None:
    await connection.client.__aexit__(None, None, None)


async def _open(key: _Key) -> Connection:
    options, _ = key
    backend = sniffio.current_async_library()
    for secret in (options.aws_access_key_id, options.aws_secret_access_key, options.aws_session_token):
        remember(secret)
    try:
        client, credentials = await anyio.to_thread.run_sync(anyio.run, _make, options, backend)
    except (anyio.get_cancelled_exc_class(), ImportError, StorageError):
        raise
    except Exception as error:
        raise translate(error, "opening a client for S3") from error
    connection = Connection(client, credentials)
    await client.__aenter__()
    return connection


_CLIENTS = SharedClients("asyncrec_s3_clients", _open, _close)


@cache
def _user_agent() -> str:
    return f"asyncrec-s3/{version('asyncrec-s3')} aiobotocore/{version('aiobotocore')}"


def _check_authorities(options: ClientOptions, session: Any) -> None:
    """Check that the certificate bundle is usable. Otherwise, every request would fail after its retries.

    Raises:
        StorageError: the bundle is not usable. The message names the file and the setting.
    """
    name, path = "verify", options.verify
    if path is True:
        name, path = "AWS_CA_BUNDLE (or ca_bundle in the SDK's configuration)", session.get_config_variable("ca_bundle")
    if not isinstance(path, str):
        return
    trusting(path, named_by=name, what="opening a client for S3", shared=True)


async def _make(options: ClientOptions, backend: str) -> tuple[Any, Any]:
    """Create the client and find its credentials.

    Run this in a worker thread, on a temporary event loop of the same kind as the client's.
    """
    global _loader
    quieten()
    session = (Session if backend == "asyncio" else SessionOnTrio)(profile=options.profile)
    if _loader is None:
        _loader = session.get_component("data_loader")
        _loader.file_loader = Models()
    session.register_component("data_loader", _loader)
    _check_authorities(options, session)
    session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=parse_date)
    s3: dict[str, Any] = {"payload_signing_enabled": options.payload_signing}
    if options.addressing_style != "auto":
        s3["addressing_style"] = options.addressing_style
    config = AioConfig(
        http_session_cls=SharingSession if backend == "asyncio" else HttpxSession,
        signature_version=botocore.UNSIGNED if options.anonymous else None,
        connect_timeout=options.connect_timeout,
        read_timeout=options.read_timeout,
        max_pool_connections=options.max_connections,
        # This user agent is sent unchanged. Otherwise, the SDK would build one from sixteen parts, twice per request.
        user_agent=_user_agent(),
        retries={"mode": "standard", "total_max_attempts": 1},
        s3=s3,
        # Every body has our own checksum, and some stores reject the SDK's default checksums.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        **(
            {}
            if backend == "asyncio"
            else {"connector_args": {"write_timeout": options.read_timeout, "pool_timeout": None}}
        ),
    )
    if options.payload_signing:
        sign_in_thread(session)
    client = await session.make_client(
        "s3",
        region_name=options.region,
        endpoint_url=options.endpoint_url,
        aws_access_key_id=options.aws_access_key_id,
        aws_secret_access_key=options.aws_secret_access_key,
        aws_session_token=options.aws_session_token,
        verify=None if options.verify is True else options.verify,
        config=config,
    )
    if options.aws_access_key_id is None or options.aws_secret_access_key is None:
        return client, None if options.anonymous else await session.get_credentials()
    return client, AioCredentials(options.aws_access_key_id, options.aws_secret_access_key, options.aws_session_token)
