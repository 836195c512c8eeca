"""Translate the errors of S3, the SDK and the HTTP clients into asyncrec's, and classify transient ones.

Codes: https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html. A message names the operation and the
object, the store's error code and message (without credentials, which some stores echo), and a known remedy.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

import anyio
import botocore.exceptions as sdk

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

from .redaction import redact, strike

Condition = Literal["", "none", "same"]
"""The condition of a request: none, that the object does not exist, or that it is still the version that was opened."""

_TRANSIENT = {
    "BadDigest", "BandwidthLimitExceeded", "ConditionalRequestConflict", "IncompleteBody", "InternalError",
    "OperationAborted", "RequestLimitExceeded", "RequestTimeout", "ServiceUnavailable", "SlowDown", "Throttling",
    "ThrottlingException", "TooManyRequests", "XAmzContentSHA256Mismatch",
}  # fmt: skip
_TRANSIENT_STATUS = {408, 425, 429, 500, 502, 503, 504}
_PROXY_ASKS = 407
# Some of these are sent with status 400.
_PERMISSION = {
    "AccessDenied", "AccountProblem", "AllAccessDisabled", "ExpiredToken", "InvalidAccessKeyId", "InvalidSecurity",
    "InvalidToken", "NotSignedUp", "RequestTimeTooSkewed", "SignatureDoesNotMatch", "TokenRefreshRequired",
}  # fmt: skip
_ADVICE = {
    "ExpiredToken": "credentials that are passed as options are not refreshed; configure them in the SDK instead",
    "RequestTimeTooSkewed": "this machine's clock is wrong; set it",
    "NoSuchBucket": "the bucket does not exist at this endpoint; check its name and endpoint_url",
    "PermanentRedirect": "the bucket is in another region; pass that region",
    "AuthorizationHeaderMalformed": "the bucket is in another region; pass that region",
}


class UploadGoneError(StorageError):
    """The upload no longer exists. It was completed or aborted, perhaps by a request whose response was lost."""


class CompletingError(StorageError):
    """An earlier request, whose response was lost, is still completing the upload.

    Ceph's gateways lock an upload while they complete it. The lock of a killed gateway expires after ten minutes
    (``rgw_mp_lock_max_time``). Until then, it is unknown whether the object will appear.
    """


class InvalidPartError(IntegrityError):
    """The store does not have a part with the given ETag."""


def translate(error: Exception, what: str, *, condition: Condition = "") -> StorageError:
    """Return the error to raise in place of ``error`` in the operation ``what``, such as ``"get s3://bucket/key"``.

    ``condition`` is the condition of the request. If it was not met, the object already exists (``"none"``) or has
    changed (``"same"``).
    """
    scrub(error)
    if isinstance(error, sdk.ClientError):
        return _of_answer(error.response, str(error), what, condition=condition)
    text = f"{what}: {redact(str(error)) or type(error).__name__}"
    if isinstance(error, (sdk.NoCredentialsError, sdk.PartialCredentialsError, sdk.ProfileNotFound)):
        return StoragePermissionError(
            f"{text}. Provide credentials through the AWS environment variables, a profile or options; for a public "
            "bucket, pass anonymous=True"
        )
    if isinstance(error, (sdk.UnauthorizedSSOTokenError, sdk.SSOTokenLoadError, sdk.NoAuthTokenError)):
        return StoragePermissionError(f"{text}. Sign in again with 'aws sso login'")
    if isinstance(error, sdk.CredentialRetrievalError) and error.kwargs.get("provider") == "custom-process":
        return StoragePermissionError(
            f"{text}. The credential_process of the profile failed; run it by hand to see why"
        )
    if isinstance(error, OSError) and error.filename is not None:
        # A request reads only one file, the token file named by the SDK's configuration or environment.
        return StoragePermissionError(
            f"{text}: the token file cannot be read; check AWS_WEB_IDENTITY_TOKEN_FILE, or web_identity_token_file "
            "in the profile"
        )
    if any(words in text for words in _NO_TLS):
        return StorageError(
            f"{text}. The server does not use TLS; check whether the endpoint's URL must begin with http://"
        )
    if isinstance(error, sdk.SSLError):
        return StorageError(
            f"{text}. If the store uses a private certificate authority, pass its certificate file with verify="
        )
    if isinstance(error, (sdk.ParamValidationError, sdk.NoRegionError, sdk.InvalidRegionError)):
        return StorageError(text)
    if isinstance(error, sdk.BotoCoreError) and not isinstance(error, _TRANSIENT_SDK):
        return StorageError(text)
    # The remaining errors come from sockets, HTTP and truncated responses (aiohttp, httpx, OSError, timeouts).
    fault = connection_fault(error, what)
    return TransientStorageError(text, lasting=fault.lasting) if isinstance(fault, TransientStorageError) else fault


# OpenSSL's messages for a response in plain HTTP, old and new.
_NO_TLS = ("WRONG_VERSION_NUMBER", "wrong version number", "record layer failure")

_TRANSIENT_SDK = (
    sdk.ConnectionError,
    sdk.HTTPClientError,
    sdk.IncompleteReadError,
    sdk.CredentialRetrievalError,  # the machine's metadata service is overloaded or briefly unavailable
    sdk.MetadataRetrievalError,
)


def _of_answer(response: Mapping[str, Any], text: str, what: str, *, condition: Condition) -> StorageError:
    code = str(response.get("Error", {}).get("Code") or "")
    metadata = response.get("ResponseMetadata", {})
    status = int(metadata.get("HTTPStatusCode", 0))
    words = str(response.get("Error", {}).get("Message") or "")[:500]
    text = (f"{what}: {code} (HTTP {status})" if code else f"{what}: HTTP {status}") + (
        f": {words}" if words and words != code else ""
    )
    if advice := _ADVICE.get(code):
        text += f"; {advice}"
    if "completion is already in progress" in words.lower():
        return CompletingError(
            f"{text}; on Ceph, the lock of a gateway that died while completing the upload lasts up to ten minutes "
            "(rgw_mp_lock_max_time)"
        )
    if code in _TRANSIENT or (status in _TRANSIENT_STATUS and code != "NotImplemented"):
        return TransientStorageError(
            text, retry_after=parse_retry_after(metadata.get("HTTPHeaders", {}).get("retry-after"))
        )
    if code == "NoSuchUpload":
        return UploadGoneError(text)
    if code == "InvalidPart":
        return InvalidPartError(
            f"{text}: the store does not have the parts that it had acknowledged; write the object again"
        )
    if status == _PROXY_ASKS:
        return StoragePermissionError(
            f"{text}; the proxy requires a password: set HTTPS_PROXY to http://user:password@host"
        )
    if code in _PERMISSION or status in (401, 403):
        if status == 403 and words in ("", "Forbidden"):
            text += "; without permission to list the bucket, S3 also gives this response for a missing object"
        return StoragePermissionError(text)
    if condition and (status == 412 or code == "PreconditionFailed"):
        if condition == "none":
            return ObjectExistsError(f"{text}; the object already exists")
        return ObjectChangedError(f"{text}; the object was replaced since it was opened: open it again")
    if status == 404:
        return ObjectNotFoundError(text)
    return StorageError(text)


def scrub(error: BaseException) -> None:
    """Remove credentials from an error of the SDK and from its chain, because errors are written to logs and reports.

    Some of the SDK's errors contain the signed request, and stores echo parts of requests in their messages.
    """
    seen: set[int] = set()
    todo: list[BaseException | None] = [error]
    while todo:
        one = todo.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        todo += [one.__cause__, one.__context__]
        one.args = tuple(strike(arg) if isinstance(arg, str) else arg for arg in one.args)
        if isinstance(one, sdk.HTTPClientError):
            one.request = None
        if isinstance(one, sdk.BotoCoreError):
            one.kwargs = {key: strike(str(value)) for key, value in one.kwargs.items() if key != "request"}
        if "_request" in vars(one):
            vars(one)["_request"] = None  # httpx also keeps the signed request
        if isinstance(one, json.JSONDecodeError):
            one.doc = ""  # the response of a local service, which may contain credentials
        if isinstance(one, sdk.ClientError):
            details = one.response.get("Error", {})
            one.response["Error"] = {key: redact(str(details[key])) for key in ("Code", "Message") if details.get(key)}


# The rate in bytes per second below which a download counts as stalled. Socket timeouts do not detect a store that
# sends a byte from time to time.
_SLOWEST = 64 << 10


class Limited:
    """A context manager that limits the duration of a request and translates its errors.

    Args:
        what: the operation and its object, for error messages.
        condition: the condition of the request, which determines the error if it is not met.
        patience: the maximum seconds without a byte, including the time to connect.
        size: the number of bytes to receive, which may take longer. A request body calls `extend` instead.

    Raises:
        StorageError: the translated error.
        TransientStorageError: also if the time limit has expired.
    """

    def __init__(self, what: str, condition: Condition, patience: float, size: int) -> None:
        self._what = what
        self._condition = condition
        self._patience = patience
        self._seconds = patience + size / _SLOWEST
        self._scope = anyio.CancelScope()

    def __enter__(self) -> None:
        self._scope.deadline = anyio.current_time() + self._seconds
        self._scope.__enter__()

    def extend(self) -> None:
        """Restart the time limit, because the request made progress."""
        self._scope.deadline = max(self._scope.deadline, anyio.current_time() + self._patience)

    def __exit__(self, exc_type: Any, exc: BaseException | None, traceback: Any) -> None:
        self._scope.__exit__(exc_type, exc, traceback)
        if self._scope.cancelled_caught:
            raise TransientStorageError(f"{self._what}: the request made no progress for {self._seconds:.0f} s")
        if isinstance(exc, Exception) and not isinstance(exc, StorageError):
            raise translate(exc, self._what, condition=self._condition) from exc
