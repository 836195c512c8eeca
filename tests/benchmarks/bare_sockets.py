"""A row of `epoch`: a single thread's least work for the same records, with handwritten GETs and asyncrec's C code.

Each connection has one buffer. There is no event loop, retry, signature or TLS, and only records' checksums are
checked.
"""

from __future__ import annotations

import selectors
import socket
import sys
from urllib.parse import urlsplit

from epoch_readers import AT_ONCE, EPOCH, PIECE, Meter, Reader, Shards
from wire import endpoint

BARE = "bare sockets, records"


async def bare_sockets(shards: Shards, meter: Meter) -> None:
    from asyncrec._native import native

    assert native is not None, "a compiler made it"
    address = urlsplit(endpoint())
    keys = iter(shards.keys)
    with selectors.DefaultSelector() as selector:

        def begin(connection: socket.socket) -> bool:
            key = next(keys, None)
            if key is None:
                return False
            connection.sendall(f"GET /bench/{key} HTTP/1.1\r\nHost: {address.netloc}\r\n\r\n".encode())
            return True

        def receive(connection: socket.socket) -> None:
            """Fill the buffer or receive all remaining bytes, and split them into records."""
            view, filled, left = open_ones[connection]
            filled += (count := connection.recv_into(view[filled:]))
            if left is None:
                head, _, rest = bytes(view[:filled]).partition(b"\r\n\r\n")
                length = next(line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
                left = int(length.partition(b":")[2]) - len(rest)
                filled = len(rest)
                view[:filled] = rest
            else:
                left -= count
            if filled == len(view) or not left:
                data, records = bytes(view[:filled]), list[bytes]()
                end = native.cut_frames(data, 0, sys.maxsize, True, records)
                meter.batch(records)
                filled -= end
                view[:filled] = data[end:]
                if not left:
                    assert not filled, "the last record is whole and good"
                    left = None
                    if not begin(connection):
                        selector.unregister(connection)
                        connection.close()
            open_ones[connection] = view, filled, left

        open_ones: dict[socket.socket, tuple[memoryview, int, int | None]] = {}
        for _ in range(AT_ONCE):
            connection = socket.create_connection((address.hostname, address.port))
            open_ones[connection] = memoryview(bytearray(PIECE // 2)), 0, None
            selector.register(connection, selectors.EVENT_READ)
        meter.start()
        for connection in open_ones:
            if not begin(connection):
                selector.unregister(connection)
        while selector.get_map():
            for key, _ in selector.select():
                receive(key.fileobj)
        meter.stop()


READERS: dict[str, tuple[Reader, str]] = {BARE: (bare_sockets, EPOCH)}
