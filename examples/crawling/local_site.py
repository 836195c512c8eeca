"""A web site to crawl without a network: a folder, served by a separate process on a free loopback port.

    async with served_folder(folder) as port:
        session = aiohttp.ClientSession(connector=connector_to("python.localhost", port))

The process runs the standard library's ``http.server``. It exits when its standard input is closed. The operating
system closes it even if the crawler is killed, so no server is left behind. `connector_to` gives the site a fixed host
name, whichever port is free, so that each page has the same URL, and the same key, in every run.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import aiohttp
import anyio
from aiohttp.abc import AbstractResolver, ResolveResult
from anyio.abc import ByteReceiveStream

SECONDS_TO_END = 5


class _Handler(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # one connection carries many pages
    disable_nagle_algorithm = (
        True  # otherwise the body, a second write, waits 40 ms for the acknowledgement of the headers
    )

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: the crawler uses the screen."""


class _Server(ThreadingHTTPServer):
    request_queue_size = 64  # the default, 5, drops some of 16 simultaneous connections; each is retried after 1 s

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a crawler that disconnects in the middle of a page: that is not an error in the server."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def serve(folder: Path) -> None:
    """Serve ``folder`` until standard input is closed. The first line of standard output is the port."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole process group; the crawler decides
    with _Server(("127.0.0.1", 0), partial(_Handler, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(server.server_port, flush=True)
        sys.stdin.buffer.read()
        server.shutdown()


@asynccontextmanager
async def served_folder(folder: Path) -> AsyncIterator[int]:
    """Serve ``folder`` while the context is open; yields the port.

    Raises:
        RuntimeError: the server did not start.
    """
    command = [sys.executable, __file__, str(folder)]
    # A separate session: otherwise, Ctrl-C in the terminal could end the server before it ignores SIGINT.
    opening = anyio.open_process(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=None, start_new_session=True
    )
    async with await opening as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield await _first_number(process.stdout)
        finally:
            with anyio.move_on_after(SECONDS_TO_END, shield=True):
                await process.stdin.aclose()
                await process.wait()
            if process.returncode is None:
                process.kill()


async def _first_number(stream: ByteReceiveStream) -> int:
    line = b""
    try:
        while not line.endswith(b"\n"):
            line += await stream.receive(64)
        return int(line)
    except (anyio.EndOfStream, ValueError):
        raise RuntimeError(f"the local web server did not start; it printed {line!r}") from None


class _OneHost(AbstractResolver):
    """Resolves a single host name to a loopback port, and refuses all others."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        if host != self._host:
            raise OSError(f"{host} is not the local site {self._host}")
        return [
            ResolveResult(hostname=host, host="127.0.0.1", port=self._port, family=socket.AF_INET, proto=0, flags=0)
        ]

    async def close(self) -> None:
        """There is nothing to close."""


def connector_to(host: str, port: int) -> aiohttp.TCPConnector:
    """A connector that connects to ``127.0.0.1:port`` for ``http://host/``. Call it inside a running event loop."""
    return aiohttp.TCPConnector(resolver=_OneHost(host, port))


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
