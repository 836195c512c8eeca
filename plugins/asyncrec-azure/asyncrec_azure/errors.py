"""Translate the errors of the store, the SDK and its HTTP client into asyncrec's, and classify transient ones.

Codes: https://learn.microsoft.com/rest/api/storageservices/blob-service-error-codes. A message names the operation, the
object, the store's code and the first line of its text without secrets, and a known remedy. If the store rejects a
signature, its text is omitted, because it quotes the signed string. No error is chained to the SDK's error, which
contains the request, its headers and its URL, because a URL with a SAS token is equivalent to a password.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Literal

import aiohttp
from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError

from asyncrec.errors import (
    IntegrityError,
    ObjectChangedError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    StoragePermissionError,
    TransientStorageError,
)
from asyncrec.storage import redact
from asyncrec.storage.http import connection_fault, parse_retry_after

Condition = Literal["", "none", "same"]
"""The condition of a request: none, that the object does not exist, or that it is still the version that was opened."""

_PROXY_ASKS = 407
_TRANSIENT_STATUS = {408, 429, 500, 502, 503, 504}
# Some are sent with status 400, for example for a block that was damaged in transit.
_TRANSIENT = {
    "ServerBusy",
    "OperationTimedOut",
    "InternalError",
    "Md5Mismatch",
    "Crc64Mismatch",
    "ContainerBeingDeleted",
}
# The codes of Azurite (with status 500, unless it was started with --loose) and of the service.
_UNKNOWN_HEADER = {"FeatureNotSupported", "UnsupportedHeader"}
_PERMISSION = {"PublicAccessNotPermitted", "KeyBasedAuthenticationNotPermitted", "AccountIsDisabled"}
_ADVICE = {
    "BlobImmutableDueToPolicy": "an immutability policy of the container forbids changing this object",
    "LeaseIdMissing": "another client holds a lease on this object; break the lease, or wait until it expires",
    "ContainerNotFound": "the container does not exist in this account; check its name and the account",
    "InvalidBlobOrBlock": (
        "another program has started to upload this object with block ids of another length; those blocks expire "
        "within a week"
    ),
    "UnsupportedHeader": "the emulator or gateway is older than the Azure SDK and does not know a header; update it",
}
_SECRETS = re.compile(r"(?i)(sig=|bearer |sharedkey |eyJ)[^\s&\"'<>,;]+")


class BlocksGoneError(StorageError):
    """The blocks no longer exist, because another writer published the object and the store discarded ours."""


class HeaderUnknownError(StorageError):
    """The store, which must be an emulator or a gateway, does not support a header of the request."""


class NoNewTokenError(AzureError):
    """The identity returned a token before, but now does not respond. The message is the type of the SDK's error."""


def translate(
    error: Exception, what: str, *, condition: Condition = "", secrets: Iterable[str] = (), sent: str = ""
) -> StorageError:
    """Return ``error`` translated for the operation ``what``, such as ``"az://container/key: reading"``.

    Args:
        condition: the condition of the request, which determines the error if it is not met.
        secrets: secrets to remove from the message, because the store may echo them.
        sent: a description of the credentials that were sent, for the message.
    """
    if (answered := _answered(error)) is not None:
        return _of_answer(answered, what, condition, secrets, sent)
    if isinstance(error, ClientAuthenticationError):
        return StoragePermissionError(
            f"{what}: no usable credentials were found ({type(error).__name__}): pass connection_string, "
            "account_key or sas_token, run `az login`, or use a machine with a managed identity; for a public "
            "container, pass anonymous=True"
        )
    if isinstance(error, NoNewTokenError):
        return TransientStorageError(f"{what}: no new token could be obtained: {error}")
    return _of_transport(error, what)


def _answered(error: BaseException) -> HttpResponseError | None:
    """Return the error in the chain that has a response, if any. The SDK wraps it if it cannot parse the response."""
    one: BaseException | None = error
    for _ in range(20):  # the chain may be a cycle
        if one is None or (isinstance(one, HttpResponseError) and one.response is not None):
            return one
        one = one.__cause__ or one.__context__
    return None


def _of_answer(
    error: HttpResponseError, what: str, condition: Condition, secrets: Iterable[str], sent: str
) -> StorageError:
    response: Any = error.response
    status = int(response.status_code)
    code = _code(response.headers.get("x-ms-error-code") or getattr(error, "error_code", None))
    text = f"{what}: HTTP {status}" + (f" {code}" if code else "")
    if 200 <= status < 300:
        # A response that the SDK cannot parse, or a truncated body.
        return TransientStorageError(f"{text}: the response cannot be read")
    if status == _PROXY_ASKS:
        return StoragePermissionError(
            f"{text}; the proxy requires a password: set HTTPS_PROXY to http://user:password@host"
        )
    if status in (401, 403) or code in _PERMISSION:
        return StoragePermissionError(
            f"{text}; the request was sent with {sent}. Check that it belongs to this account and is still valid; "
            "the plugin's README lists the permissions that each operation needs"
        )
    words = _strike((str(error.message or "").splitlines() or [""])[0][:300], secrets)
    # If the store sent no text, as for HEAD, the SDK inserts an uninformative text.
    text += "" if not words or words.startswith("Operation returned") else f": {words}"
    if advice := _ADVICE.get(code):
        text += f"; {advice}"
    if code in _UNKNOWN_HEADER:
        return HeaderUnknownError(text)
    if code in _TRANSIENT or status in _TRANSIENT_STATUS:
        return TransientStorageError(text, retry_after=parse_retry_after(response.headers.get("Retry-After")))
    if code == "InvalidBlockList":
        return BlocksGoneError(f"{text}; another writer has published this object in the meantime; write it again")
    if status == 404 and not code:
        # Azure always sends a code, even for HEAD, so a response without a code is not from Azure.
        return StorageError(f"{text}: the response is not from Azure; check the endpoint")
    if status == 404:
        return ObjectNotFoundError(text)
    if condition == "none" and (status == 412 or code == "BlobAlreadyExists"):
        return ObjectExistsError(f"{text}; the object already exists")
    if condition == "same" and status in (412, 416):
        return ObjectChangedError(f"{text}; the object was replaced since it was opened: open it again")
    if code == "InvalidMd5":
        return IntegrityError(f"{text}; the object was not published; write it again")
    return StorageError(text)


def _of_transport(error: Exception, what: str) -> StorageError:
    """Return the error for a failed connection, without the original text, which may contain the URL."""
    inner = getattr(error, "inner_exception", None) or error
    name = type(inner).__name__
    if isinstance(inner, (aiohttp.ClientSSLError, aiohttp.ServerFingerprintMismatch)):
        return StorageError(
            f"{what}: {name}: this machine does not trust the store's certificate; pass a file of trusted "
            "authorities as the option ca_file or in the environment variable SSL_CERT_FILE"
        )
    if isinstance(inner, (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError)):
        return StorageError(f"{what}: {name}: the endpoint is not a usable URL; check it")
    if not isinstance(inner, (AzureError, aiohttp.ClientError, OSError, TimeoutError)):
        return TransientStorageError(f"{what}: {name}: the response cannot be read; it may come from a proxy")
    return connection_fault(inner, what)


def _code(value: object) -> str:
    text = str(getattr(value, "value", value) or "")
    return text if re.fullmatch(r"[A-Za-z0-9]{1,80}", text) else ""


def _strike(text: str, secrets: Iterable[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, "***")
    return redact(_SECRETS.sub(r"\1***", text))
