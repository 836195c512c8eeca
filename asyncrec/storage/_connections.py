"""What becomes of a connection that failed, whatever HTTP client made it."""

from __future__ import annotations

import socket

from asyncrec.errors import TransientStorageError

__all__ = ["connection_fault"]

# A name server has answered that there is no such host. One that does not answer is another matter.
_NO_SUCH_HOST = {getattr(socket, name) for name in ("EAI_NONAME", "EAI_NODATA") if hasattr(socket, name)}


def connection_fault(error: BaseException, text: str, *, host: str | None = None) -> TransientStorageError:
    """Make the error for a connection that failed, or for an answer that was cut short.

    If no name server knows the host, the error is ``lasting``, and so the request is tried a few times only.

    Args:
        error: of the client. Only its type, host, port and number are told: its text may hold a signed address.
        text: the operation and the object.
        host: that was asked, if the client's error does not know it.
    """
    host, port = getattr(error, "host", None) or host, getattr(error, "port", None)
    number = getattr(error, "errno", None)
    about = [f"{host}:{port}" if port else str(host)] if host else []
    about += [f"errno {number}"] if number else []
    lasting = _is_of_no_host(error)
    said = f"{text}: {type(error).__name__}" + (f" ({', '.join(about)})" if about else "")
    return TransientStorageError(said + ("; no name server knows this host" if lasting else ""), lasting=lasting)


def _is_of_no_host(error: BaseException) -> bool:
    one: BaseException | None = error
    for _ in range(20):  # chains may be rings
        if one is None:
            return False
        if isinstance(one, socket.gaierror) and one.errno in _NO_SUCH_HOST:
            return True
        one = one.__cause__ or one.__context__
    return False
