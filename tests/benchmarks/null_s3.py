"""An S3 store that does no work: it discards what it receives, and repeatedly sends the same tile.

    python tests/benchmarks/null_s3.py TILE

prints its port, and serves 127.0.0.1 until its standard input ends. It supports uploads (puts and multipart), HEAD, and
GET with ranges, without authentication or listings. Checksums are echoed, not computed. The object ``give-N``, in any
bucket, has N bytes: the repeated contents of the file TILE. The kernel discards uploads without copying them
(``MSG_TRUNC`` on Linux; elsewhere, they are read into a buffer), and downloads are sent by ``sendfile``, so that only
the client is measured, even on a machine with few cores. Each connection has a thread, and none runs Python code for
individual bytes of a body.
"""

from __future__ import annotations

import os
import re
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from pathlib import Path
from subprocess import PIPE, Popen
from urllib.parse import parse_qs, urlsplit

MIB = 1 << 20
_ETAG = '"of-no-content-1"'  # does not have the form of an MD5, so it is not mistaken for one
_DISCARD = socket.MSG_TRUNC if sys.platform == "linux" else 0


@dataclass
class _Object:
    size: int = 0
    headers: list[str] = field(default_factory=list)
    file: int | None = None  # the content, if it is not the tile


class _Store:
    def __init__(self, tile: Path) -> None:
        self.objects: dict[str, _Object] = {}
        self.uploads: dict[str, _Object] = {}
        self.date = formatdate(time.time(), usegmt=True)
        self.tile = os.open(tile, os.O_RDONLY)
        self.tile_size = os.fstat(self.tile).st_size

    def find(self, key: str) -> _Object | None:
        if match := re.fullmatch(r"give-(\d+)", key):
            return _Object(int(match[1]))
        return self.objects.get(key)


class _Connection:
    def __init__(self, store: _Store, connection: socket.socket) -> None:
        self.store = store
        self.socket = connection
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.held = b""
        self.waste = bytearray(MIB)

    def serve(self) -> None:
        try:
            while head := self._head():
                self._answer(head)
        except ConnectionError:
            pass
        finally:
            self.socket.close()

    def _head(self) -> str:
        while b"\r\n\r\n" not in self.held:
            block = self.socket.recv(65536)
            if not block:
                return ""
            self.held += block
        head, _, self.held = self.held.partition(b"\r\n\r\n")
        return head.decode("latin-1")

    def _answer(self, head: str) -> None:
        request, *lines = head.split("\r\n")
        method, target, _ = request.split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        if headers.get("expect"):
            self.socket.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        if headers.get("transfer-encoding", "").lower() == "chunked":
            size = self._discard_chunks()
        else:
            size = int(headers.get("content-length", 0))
            self._discard(size)
        size = int(headers.get("x-amz-decoded-content-length", size))
        url = urlsplit(target)
        key = url.path.lstrip("/").partition("/")[2]
        query = parse_qs(url.query, keep_blank_values=True)
        checksums = [f"{name}: {headers[name]}" for name in headers if re.fullmatch(r"x-amz-checksum-[a-z0-9]+", name)]
        if "if-none-match" in headers and key in self.store.objects:
            self._reply(412, [], _xml("Error", Code="PreconditionFailed"))
        elif method == "PUT" and "partNumber" in query:
            self.store.uploads[query["uploadId"][0]].size += size
            self._reply(200, [f"ETag: {_ETAG}", *checksums])
        elif method == "PUT":
            kept = [f"{name}: {value}" for name, value in headers.items() if name.startswith("x-amz-meta-")]
            self.store.objects[key] = _Object(size, kept + checksums)
            self._reply(200, [f"ETag: {_ETAG}", *checksums])
        elif method == "POST" and "uploads" in query:
            upload = f"upload-{time.monotonic_ns()}-{threading.get_ident()}"
            kept = [f"{name}: {value}" for name, value in headers.items() if name.startswith("x-amz-meta-")]
            self.store.uploads[upload] = _Object(0, kept)
            self._reply(200, [], _xml("InitiateMultipartUploadResult", Key=key, UploadId=upload))
        elif method == "POST" and "uploadId" in query:
            self.store.objects[key] = made = self.store.uploads.pop(query["uploadId"][0])
            made.headers += checksums
            self._reply(200, [], _xml("CompleteMultipartUploadResult", Key=key, ETag=_ETAG.replace('"', "&quot;")))
        elif method == "DELETE":
            if "uploadId" in query:
                self.store.uploads.pop(query["uploadId"][0], None)
            else:
                self.store.objects.pop(key, None)
            self._reply(204, [])
        elif method in ("GET", "HEAD"):
            self._give(method, key, headers.get("range", ""))
        else:
            self._reply(501, [])

    def _give(self, method: str, key: str, wanted: str) -> None:
        found = self.store.find(key)
        if found is None:
            self._reply(404, [], b"" if method == "HEAD" else _xml("Error", Code="NoSuchKey"))
            return
        start, end, status = 0, found.size, 200
        extra = [f"ETag: {_ETAG}", f"Last-Modified: {self.store.date}", "Accept-Ranges: bytes", *found.headers]
        if match := re.fullmatch(r"bytes=(\d+)-(\d*)", wanted):
            start, end, status = int(match[1]), min(found.size, int(match[2] or found.size) + 1), 206
            extra.append(f"Content-Range: bytes {start}-{end - 1}/{found.size}")
        self._reply(status, extra, size=end - start)
        if method == "HEAD":
            return
        file, tile = (self.store.tile, self.store.tile_size) if found.file is None else (found.file, found.size)
        while start < end:
            at = start % tile
            start += os.sendfile(self.socket.fileno(), file, at, min(end - start, tile - at))

    def _reply(self, status: int, headers: list[str], body: bytes = b"", *, size: int | None = None) -> None:
        lines = [f"HTTP/1.1 {status} OK", f"Date: {self.store.date}", f"Content-Length: {len(body) or size or 0}"]
        self.socket.sendall("\r\n".join([*lines, *headers, "", ""]).encode("latin-1") + body)

    def _discard(self, size: int) -> None:
        taken = min(size, len(self.held))
        self.held = self.held[taken:]
        size -= taken
        while size:
            count = self.socket.recv_into(self.waste, min(size, MIB), _DISCARD)
            if not count:
                raise ConnectionResetError
            size -= count

    def _discard_chunks(self) -> int:
        """Discard a chunked body, as the SDK sends one with a checksum in its trailer."""
        total = 0
        while True:
            size = int(self._line().partition(b";")[0], 16)
            self._discard(size)
            total += size
            line = self._line()  # the end of the chunk, or the trailer
            if not size:
                while line:
                    line = self._line()
                return total

    def _line(self) -> bytes:
        while b"\r\n" not in self.held:
            block = self.socket.recv(4096)
            if not block:
                raise ConnectionResetError
            self.held += block
        line, _, self.held = self.held.partition(b"\r\n")
        return line


def _xml(root: str, **values: str) -> bytes:
    inner = "".join(f"<{name}>{value}</{name}>" for name, value in values.items())
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<{root}>{inner}</{root}>'.encode()


def serve(tile: Path) -> None:
    """Serve until standard input ends, which also happens if the benchmark is killed."""
    store = _Store(tile)
    listening = socket.create_server(("127.0.0.1", 0), backlog=128)

    def accept() -> None:
        while True:
            connection, _ = listening.accept()
            threading.Thread(target=_Connection(store, connection).serve, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    print(listening.getsockname()[1], flush=True)
    sys.stdin.buffer.read()


@contextmanager
def null_s3(tile: Path) -> Iterator[str]:
    """Start a server in a separate process; yield its endpoint."""
    with Popen([sys.executable, __file__, str(tile)], stdin=PIPE, stdout=PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.stdin.close()


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
