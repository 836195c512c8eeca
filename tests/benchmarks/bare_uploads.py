"""The floor for uploads in `s3`: the minimum work of a single thread to send the same parts.

Requests are written by hand, with the CRC-32C in the header computed by asyncrec's C code. Each part is copied, because
the caller may change the buffer. There are no retries, signatures or TLS, and other tasks cannot run.
"""

from __future__ import annotations

import selectors
import socket
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from urllib.parse import urlsplit

from harness import MIB, Case
from wire import AT_ONCE, chunks, endpoint, source


@asynccontextmanager
async def sockets() -> AsyncIterator[list[socket.socket]]:
    address = urlsplit(endpoint())
    with ExitStack() as stack:
        yield [stack.enter_context(socket.create_connection((address.hostname, address.port))) for _ in range(AT_ONCE)]


async def sends(case: Case, connections: list[socket.socket]) -> None:
    """Send parts on several connections as fast as their sockets accept them."""
    from asyncrec._framing.crc import crc32c

    data = source()
    parts = chunks(case.count * MIB)
    left: dict[socket.socket, memoryview] = {}
    with selectors.DefaultSelector() as selector:

        def begin(connection: socket.socket) -> None:
            size = next(parts, None)
            if size is None:
                selector.unregister(connection)
                return
            body = bytes(data[:size])
            head = f"PUT /bench/sent HTTP/1.1\r\nHost: bench\r\nContent-Length: {size}\r\n"
            head += f"x-amz-checksum-crc32c: {b64encode(crc32c(body).to_bytes(4, 'big')).decode()}\r\n\r\n"
            connection.setblocking(True)
            connection.sendall(head.encode())
            connection.setblocking(False)
            left[connection] = memoryview(body)
            selector.modify(connection, selectors.EVENT_WRITE)

        for connection in connections:
            selector.register(connection, selectors.EVENT_WRITE)
            begin(connection)
        while selector.get_map():
            for key, events in selector.select():
                connection = key.fileobj
                if events == selectors.EVENT_WRITE:
                    left[connection] = left[connection][connection.send(left[connection]) :]
                    if not left[connection]:
                        selector.modify(connection, selectors.EVENT_READ)
                else:
                    assert connection.recv(4096).startswith(b"HTTP/1.1 200"), "one answer, in one piece"
                    begin(connection)
