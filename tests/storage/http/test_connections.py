"""Errors of failed connections name the host and port; if the host does not exist, there are only a few retries."""

from __future__ import annotations

import socket

import anyio
import pytest

from asyncrec.errors import StoragePermissionError, TransientStorageError
from asyncrec.storage import retrying
from asyncrec.storage.http import connection_fault


class ClientError(OSError):
    """A stand-in for an HTTP client's exception."""

    host, port = "store.example", 443


def test_refused_connection_error_names_address() -> None:
    fault = connection_fault(ClientError(111, "secret"), "az://crawl/x: writing")
    assert str(fault) == "az://crawl/x: writing: ClientError (store.example:443, errno 111)"
    assert isinstance(fault, TransientStorageError)
    assert not fault.lasting


def test_proxy_authentication_error_is_not_transient() -> None:
    class ProxyError(OSError):
        status = 407

    error = OSError()
    error.__context__ = ProxyError()
    fault = connection_fault(error, "what")
    assert type(fault) is StoragePermissionError
    assert "requires a password" in str(fault)


@pytest.mark.parametrize(("number", "lasting"), [(socket.EAI_NONAME, True), (socket.EAI_AGAIN, False)])
def test_unknown_host_is_lasting_fault_unlike_silent_resolver(number: int, lasting: bool) -> None:
    """A name server that does not respond now may respond later."""
    error = ClientError()
    error.__cause__ = socket.gaierror(number, "secret")
    fault = connection_fault(error, "what")
    assert isinstance(fault, TransientStorageError)
    assert fault.lasting == lasting
    assert ("the host name cannot be resolved" in str(fault)) == lasting
    assert "secret" not in str(fault)


def test_cyclic_exception_causes_are_handled() -> None:
    first, second = OSError(), OSError()
    first.__cause__, second.__cause__ = second, first
    assert isinstance(connection_fault(first, "what"), TransientStorageError)


@pytest.mark.anyio
async def test_lasting_fault_is_retried_only_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = 0

    async def fail() -> None:
        nonlocal tried
        tried += 1
        raise TransientStorageError("what", lasting=True)

    async def sleep(delay: float) -> None:
        await anyio.lowlevel.checkpoint()

    monkeypatch.setattr(anyio, "sleep", sleep)
    with pytest.raises(TransientStorageError):
        await retrying(fail, what="what")
    assert tried == 4
