"""What becomes of a connection that failed, whatever HTTP client made it."""

from __future__ import annotations

import socket
from collections.abc import Iterator

from asyncrec.errors import StorageError, StoragePermissionError, TransientStorageError

_PROXY_ASKS = 407
_ASKED = "a proxy on the way asks for a password: HTTPS_PROXY and HTTP_PROXY may hold it, as http://user:password@host"

# A name server has answered that there is no such host. One that does not answer is another matter.
_NO_SUCH_HOST = {getattr(socket, name) for name in ("EAI_NONAME", "EAI_NODATA") if hasattr(socket, name)}


def connection_fault(error: BaseException, what: str) -> StorageError:
    """Make the error for a connection that failed, or for an answer that was cut short: a `TransientStorageError`.

    If no name server knows the host, the error is ``lasting``, and so the request is tried a few times only. If a proxy
    asks for a password, it is a `StoragePermissionError`.

    Args:
        error: of the client. Only its type, host, port and number are told: its text may hold a signed address.
        what: the operation and the object.
    """
    host, port, number = (getattr(error, name, None) for name in ("host", "port", "errno"))
    about = [f"{host}:{port}"] if host and port else []
    about += [f"errno {number}"] if number else []
    said = f"{what}: {type(error).__name__}" + (f" ({', '.join(about)})" if about else "")
    if any(getattr(one, "status", None) == _PROXY_ASKS for one in _chain(error)):
        return StoragePermissionError(f"{said}: {_ASKED}")
    lasting = any(isinstance(one, socket.gaierror) and one.errno in _NO_SUCH_HOST for one in _chain(error))
    return TransientStorageError(said + ("; no name server knows this host" if lasting else ""), lasting=lasting)


def _chain(error: BaseException) -> Iterator[BaseException]:
    one: BaseException | None = error
    for _ in range(20):  # it may be a ring
        if one is None:
            return
        yield one
        one = one.__cause__ or one.__context__
