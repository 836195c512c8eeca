"""The HTTP clients of storages: options, trusted authorities, connection errors, log filters, and sharing.

A data set is read through many storages at a time, one for each open path. Storages with the same connection settings
share one client (`SharedClients`) with its connections and token.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import Any, Generic, TypeVar

import anyio
import anyio.lowlevel

from asyncrec._concurrency.forks import on_fork, refuse_use
from asyncrec.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    StorageError,
    StoragePermissionError,
    TransientStorageError,
)

K = TypeVar("K", bound=Hashable)
C = TypeVar("C")

# The time limit in seconds for closing a client, whose connections are idle.
_CLOSE_SECONDS = 5.0

_PROXY_ASKS = 407
_ASKED = "the proxy requires a password; set HTTPS_PROXY or HTTP_PROXY to http://user:password@host"

# The error codes for a host that does not exist, as reported by a name server. If no name server responds, the code is
# different.
_NO_SUCH_HOST = {getattr(socket, name) for name in ("EAI_NONAME", "EAI_NODATA") if hasattr(socket, name)}

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class SharedClients(Generic[K, C]):
    """The clients in use, one for each key and event loop. The first user creates a client, and the last closes it.

    In a forked child, the parent's clients raise RuntimeError, because the connections are the parent's.

    Args:
        name: a name for this kind of client.
        make: creates the client for a key. Concurrent callers with the same key wait for the same client.
        close: closes a client, within five seconds.
    """

    def __init__(self, name: str, make: Callable[[K], Awaitable[C]], close: Callable[[C], Awaitable[object]]) -> None:
        self._clients: anyio.lowlevel.RunVar[dict[K, _Shared[C]]] = anyio.lowlevel.RunVar(name)
        self._make = make
        self._close = close

    @asynccontextmanager
    async def use(self, key: K) -> AsyncIterator[C]:
        """Yield the client for ``key``, for use within the context.

        Raises:
            Exception: the error of ``make``. The next caller tries again.
        """
        try:
            clients = self._clients.get()
        except LookupError:
            clients = {}
            self._clients.set(clients)
        shared = clients.setdefault(key, _Shared())
        shared.users += 1
        try:
            async with shared.making:
                if shared.client is None:
                    shared.client = await self._make(key)
                    on_fork(shared)
            yield shared.client
        finally:
            shared.users -= 1
            if not shared.users:
                del clients[key]
                if shared.client is not None:
                    with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
                        await self._close(shared.client)


class _Shared(Generic[C]):
    """A client, once it has been created, and the number of its users."""

    def __init__(self) -> None:
        self.users = 0
        self.making = anyio.Lock()
        self.client: C | None = None

    def forked(self) -> None:
        """Make every later use of the client raise an error. It is never closed in the child."""
        if self.client is not None:
            refuse_use(self.client)
            self.client = None


def trusting(path: str | None, *, named_by: str, what: str, shared: bool = False) -> ssl.SSLContext:
    """Return the TLS context of a client that trusts the authorities in a file, or this machine's. Blocks.

    Args:
        path: a file of certificates in PEM form; `None` for the machine's authorities.
        named_by: the option or environment variable with the file's path, for the error message.
        what: the operation, for the error message.
        shared: return the same context for the same arguments until the file changes, because parsing an ordinary file
            of 140 authorities takes 25 ms of processor time. Use this only for clients that never modify their context:
            those of aiohttp, but not of httpx, which sets the protocols of each connection.

    Raises:
        StorageError: the file does not exist, cannot be read, or contains no certificates. Otherwise, every request
            would fail later, with an error that does not mention the file.
    """
    where = f"{what}: the certificate file {path}, which {named_by} names"
    paths = ssl.get_default_verify_paths()
    file = path or paths.cafile
    try:
        if file is None or not shared:  # without such a file, authorities are loaded quickly, one by one
            return ssl.create_default_context(cafile=path)
        state = os.stat(file)
        changed = (state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns)
        return _context(path, (paths.cafile, paths.capath), changed)
    except ssl.SSLError as error:
        raise StorageError(f"{where}: the file does not contain certificates in PEM format ({error.reason})") from None
    except OSError as error:
        raise StorageError(f"{where}: {error.strerror}") from None


@lru_cache(8)
def _context(path: str | None, default: tuple[str | None, ...], changed: tuple[int, ...]) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=path)


def connection_fault(error: BaseException, what: str) -> StorageError:
    """Return the error, usually transient, for a failed connection or a truncated response.

    The error is a `TransientStorageError`. If no name server knows the host, the error is ``lasting``, so the request
    is retried only a few times. If a proxy requires a password, the error is a `StoragePermissionError` instead.

    Args:
        error: the client's error. Only its type, host, port and number are used, because its text may contain a signed
            URL.
        what: the operation and the object.
    """
    host, port, number = (getattr(error, name, None) for name in ("host", "port", "errno"))
    about = [f"{host}:{port}"] if host and port else []
    about += [f"errno {number}"] if number else []
    said = f"{what}: {type(error).__name__}" + (f" ({', '.join(about)})" if about else "")
    if any(getattr(one, "status", None) == _PROXY_ASKS for one in _chain(error)):
        return StoragePermissionError(f"{said}: {_ASKED}")
    lasting = any(isinstance(one, socket.gaierror) and one.errno in _NO_SUCH_HOST for one in _chain(error))
    return TransientStorageError(
        said + ("; the host name cannot be resolved: check its spelling and the network" if lasting else ""),
        lasting=lasting,
    )


def _chain(error: BaseException) -> Iterator[BaseException]:
    one: BaseException | None = error
    for _ in range(20):  # the chain may be a cycle
        if one is None:
            return
        yield one
        one = one.__cause__ or one.__context__


class Redacting(logging.Filter):
    """A log filter that removes secrets from messages and tracebacks.

    Args:
        strike: a function that removes the secrets from a text.
    """

    def __init__(self, strike: Callable[[str], str]) -> None:
        super().__init__()
        self._strike = strike
        self._formatter = logging.Formatter()

    def install(self, loggers: Iterable[str]) -> None:
        """Add the filter to the named loggers. Adding it again has no effect."""
        for name in loggers:
            logging.getLogger(name).addFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if (clean := self._strike(text)) != text:
            record.msg, record.args = clean, ()
        if record.exc_info:
            # Formatters use this text instead of formatting the exception themselves.
            record.exc_text = self._strike(self._formatter.formatException(record.exc_info))
            record.exc_info = None
        return True


def check_options(store: str, given: Mapping[str, Any], types: Mapping[str, Any]) -> None:
    """Check the names and types of a storage's options, and reject strings that cannot be sent to a store.

    Error messages never contain values, because they may be credentials.

    Args:
        store: the storage's name, for messages.
        types: the type of each known option, in a form that `isinstance` accepts, such as ``str | None``.

    Raises:
        TypeError: an option is unknown, or has another type.
        ValueError: a string contains a control character, such as the final newline of a file from which it was read.
    """
    if unknown := sorted(set(given) - set(types)):
        raise ArgumentTypeError(
            f"{store} has no option {', '.join(unknown)}; the options are {', '.join(sorted(types))}"
        )
    for name, value in given.items():
        if not isinstance(value, types[name]):
            wanted = getattr(types[name], "__name__", None) or str(types[name])
            raise ArgumentTypeError(f"the option {name} of {store} must be {wanted}, not {type(value).__name__}")
        if isinstance(value, str) and _CONTROL.search(value):
            raise ArgumentValueError(
                f"the option {name} of {store} contains a control character, perhaps a newline at the end of the "
                "file from which it was read; remove it"
            )
