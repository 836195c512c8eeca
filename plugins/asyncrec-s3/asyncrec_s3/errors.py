"""What S3, the SDK and the two HTTP clients raise, as errors of asyncrec: the one place that says what is transient.

Codes: https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html. A message names operation and object, the
store's code and its words with credentials struck out (stores do echo them), and what to do where that is known.
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
"""What a request was sent under: nothing, that the object is not there, or that it is the one that was opened."""

_TRANSIENT = {
    "BadDigest", "BandwidthLimitExceeded", "ConditionalRequestConflict", "IncompleteBody", "InternalError",
    "OperationAborted", "RequestLimitExceeded", "RequestTimeout", "ServiceUnavailable", "SlowDown", "Throttling",
    "ThrottlingException", "TooManyRequests", "XAmzContentSHA256Mismatch",
}  # fmt: skip
_TRANSIENT_STATUS = {408, 425, 429, 500, 502, 503, 504}
_PROXY_ASKS = 407
# Some of these come with status 400.
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
    """The upload is no more: completed or aborted, by us in a request whose answer was lost, or by another."""


class CompletingError(StorageError):
    """A completion of the upload is under way already, says the store: ours, sent before, whose answer was lost.

    Ceph's gateways lock an upload while they complete it; the lock of one that was killed lasts for ten minutes
    (``rgw_mp_lock_max_time``), and nobody can say before whether the object will be there.
    """


class InvalidPartError(IntegrityError):
    """The store does not have a part under the ETag that it is said to have."""


def translate(error: Exception, what: str, *, condition: Condition = "") -> StorageError:
    """Make the error to raise in place of ``error``, for the operation ``what`` (``"get s3://bucket/key"``).

    ``condition`` is the one that was sent, and so what it means that it failed: with ``"none"`` the object is there
    already, with ``"same"`` it has changed.
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
        # What a request reads is a file of a token, which the SDK's configuration or environment names.
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
    # What is left comes from sockets, HTTP and answers that were cut short: aiohttp, httpx, OSError, timeouts.
    fault = connection_fault(error, what)
    return TransientStorageError(text, lasting=fault.lasting) if isinstance(fault, TransientStorageError) else fault


# OpenSSL's words for an answer in plain HTTP, old and new.
_NO_TLS = ("WRONG_VERSION_NUMBER", "wrong version number", "record layer failure")

_TRANSIENT_SDK = (
    sdk.ConnectionError,
    sdk.HTTPClientError,
    sdk.IncompleteReadError,
    sdk.CredentialRetrievalError,  # the machine's metadata service, asked too often or for a moment away
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
    """Strike credentials out of an error of the SDK and of what it is chained to: they outlive us in logs and reports.

    The SDK keeps the signed request in some errors; stores echo parts of it in theirs.
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
            vars(one)["_request"] = None  # httpx keeps the signed request, too
        if isinstance(one, json.JSONDecodeError):
            one.doc = ""  # what a service of the machine sent, credentials perhaps
        if isinstance(one, sdk.ClientError):
            details = one.response.get("Error", {})
            one.response["Error"] = {key: redact(str(details[key])) for key in ("Code", "Message") if details.get(key)}


# Bytes per second below which a transfer counts as stalled; the timeouts of sockets do not see a store that reads
# nothing, or sends a byte now and then.
_SLOWEST = 64 << 10


class Limited:
    """A context that limits the time of a request, and translates its errors.

    Args:
        what: the operation and its object, for errors.
        condition: what the request asked for, which says what a refusal means.
        patience: seconds without a byte, those for connecting included.
        size: bytes that it transfers.

    Raises:
        StorageError: of the tree; `TransientStorageError` also when the time is over.
    """

    def __init__(self, what: str, condition: Condition, patience: float, size: int) -> None:
        self._what = what
        self._condition = condition
        self._seconds = patience + size / _SLOWEST
        self._scope = anyio.CancelScope()

    def __enter__(self) -> None:
        self._scope.deadline = anyio.current_time() + self._seconds
        self._scope.__enter__()

    def __exit__(self, exc_type: Any, exc: BaseException | None, traceback: Any) -> None:
        self._scope.__exit__(exc_type, exc, traceback)
        if self._scope.cancelled_caught:
            raise TransientStorageError(f"{self._what}: the request did not finish within {self._seconds:.0f} s")
        if isinstance(exc, Exception) and not isinstance(exc, StorageError):
            raise translate(exc, self._what, condition=self._condition) from exc
