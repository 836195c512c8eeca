"""Translate the errors of the store and the HTTP client into asyncrec's, and classify transient ones.

Codes: https://cloud.google.com/storage/docs/json_api/v1/status-codes. A message names the operation, the object, the
store's reason and text without secrets, and a known remedy. No error is chained to the client's error, which contains
the request, its headers and the URL of the upload session, which is equivalent to a password.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Literal

import aiohttp

from asyncrec.errors import (
    IntegrityError,
    ObjectChangedError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    StoragePermissionError,
    TransientStorageError,
)
from asyncrec.storage.http import connection_fault, parse_retry_after

Condition = Literal["", "none", "same"]
"""The condition of a request: none, that the object does not exist, or that it is still the version that was opened."""

_PROXY_ASKS = 407
_TRANSIENT = {408, 429, 500, 502, 503, 504}
# A 403 with one of these reasons is an older form of a 429 (a rate limit).
_LIMITS = {"rateLimitExceeded", "userRateLimitExceeded", "backendError"}
_SECRETS = re.compile(r"(?i)(upload_?id[=:\s\"']+|bearer\s+|ya29\.|(?:access_|refresh_)?token[=:\s\"']+)[^\s&\"'<>,;]+")


class SessionGoneError(StorageError):
    """The upload session no longer exists. It expired, was aborted, or was completed without a response."""


def of_answer(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    what: str,
    *,
    write: bool = False,
    condition: Condition = "",
    secret: str | None = None,
    endpoint: str = "",
) -> StorageError:
    """Return the error for a response.

    Args:
        what: the object and the operation, such as ``"gs://bucket/key: reading"``.
        write: whether the request opens an upload or sends its bytes.
        condition: the condition of the request, which determines the error if it is not met.
        secret: the access token in use, in case the store echoes it.
        endpoint: the endpoint of the request.
    """
    reason, words = _explanation(body)
    text = strike(f"{what}: HTTP {status}" + (f" {reason}" if reason else "") + (f": {words}" if words else ""), secret)
    if is_transient(status) or (status == 403 and reason in _LIMITS):
        return TransientStorageError(text, retry_after=parse_retry_after(headers.get("Retry-After")))
    if status == 401:
        return StoragePermissionError(
            f"{text}; provide credentials through GOOGLE_APPLICATION_CREDENTIALS, `gcloud auth application-default "
            "login`, or the options token and service_file; for a public bucket, pass anonymous=True"
        )
    if status == _PROXY_ASKS:
        return StoragePermissionError(
            f"{text}; the proxy requires a password: set HTTPS_PROXY to http://user:password@host"
        )
    if status == 403:
        hint = "the plugin's README lists the permissions that each operation needs"
        if not write:
            hint += "; without storage.objects.list, GCS also gives this response for a missing object"
        return StoragePermissionError(f"{text}; {hint}")
    if status in (400, 412) and write and "crc32c" in words.lower():
        return IntegrityError(f"{text}; the object was not published; write it again")
    if status == 404 and not words:
        # GCS always sends a reason, so a response without a reason is not from GCS.
        return StorageError(f"{text}: the response is not from GCS; check the endpoint {endpoint}")
    if status == 404:
        return ObjectNotFoundError(text)
    if status == 412 and condition == "none":
        return ObjectExistsError(f"{text}; the object already exists")
    if status == 412 and condition == "same":
        return ObjectChangedError(f"{text}; the object was replaced since it was opened: open it again")
    return StorageError(text)


def of_transport(error: Exception, what: str) -> StorageError:
    """Return the error for a failed connection, without the original text, which may contain the URL."""
    name = type(error).__name__
    if isinstance(error, (aiohttp.ClientSSLError, aiohttp.ServerFingerprintMismatch)):
        return StorageError(
            f"{what}: {name}: this machine does not trust the store's certificate; set the environment variable "
            "SSL_CERT_FILE to a file of trusted authorities before the program starts"
        )
    if isinstance(error, (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError)):
        return StorageError(f"{what}: {name}: the endpoint is not a usable URL; check it")
    return connection_fault(error, what)


def is_transient(status: int) -> bool:
    return status in _TRANSIENT


def strike(text: str, secret: str | None = None) -> str:
    """Remove tokens and upload ids from ``text``."""
    text = _SECRETS.sub(r"\1***", text)
    return text.replace(secret, "***") if secret else text


def _explanation(body: bytes) -> tuple[str, str]:
    """Return the reason (a single word) and the message from an error's JSON. A missing value is ``""``."""
    try:
        error = json.loads(body)["error"]
        reasons = [str(each.get("reason", "")) for each in error.get("errors", [])]
        reason = next((each for each in reasons if re.fullmatch(r"[A-Za-z]{1,60}", each)), "")
        return reason, " ".join(str(error.get("message", "")).split())[:300]
    except (ValueError, KeyError, TypeError, AttributeError):
        return "", ""
