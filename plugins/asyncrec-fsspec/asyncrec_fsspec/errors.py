"""What filesystems raise, as errors of asyncrec. Their texts may hold signed addresses: secrets are struck out."""

from __future__ import annotations

from asyncrec.errors import ObjectNotFoundError, StorageError, StoragePermissionError, TransientStorageError
from asyncrec.storage import redact

__all__ = ["translate"]

# By name: they come from libraries that may not be installed.
_PERMISSION = ("AuthenticationException", "ClientAuthenticationError", "GatedRepoError", "NoCredentialsError")
_ABSENT = ("EntryNotFoundError", "RepositoryNotFoundError", "RevisionNotFoundError")
_TRANSIENT = (
    "ClientConnectionError", "ClientPayloadError", "ConnectionClosedError", "HTTPClientError", "IncompleteReadError",
    "ReadError", "RemoteProtocolError", "SSHException", "ServerTimeoutError", "TransportError",
)  # fmt: skip
_TRANSIENT_STATUS = (408, 429, 500, 502, 503, 504)


def translate(error: Exception, what: str) -> StorageError:
    """Make the error that one of a filesystem's means, for the operation ``what`` (``"hf://x: reading"``)."""
    text = f"{what}: {type(error).__name__}: {redact(str(error))[:300]}"
    names = {each.__name__ for each in type(error).__mro__}
    response = getattr(error, "response", None)
    status = getattr(error, "status", None) or getattr(response, "status_code", None)
    if isinstance(error, (FileNotFoundError, IsADirectoryError, NotADirectoryError)) or names & {*_ABSENT}:
        return ObjectNotFoundError(text)
    if isinstance(error, PermissionError) or names & {*_PERMISSION} or status in (401, 403):
        return StoragePermissionError(text)
    if status == 404:
        return ObjectNotFoundError(text)
    transient = isinstance(error, (ConnectionError, TimeoutError, EOFError)) or names & {*_TRANSIENT}
    if transient or status in _TRANSIENT_STATUS:
        return TransientStorageError(text)
    return StorageError(text)
