"""Stores that do no work, each in a separate process: `null_s3` with listings, GCS and Azure, with an optional rate.

    python tests/benchmarks/null_stores.py s3|gcs|azure TILE RATE

prints its port. RATE limits all uploads together, in bytes per second; 0 means no limit. Checksums are echoed, not
computed. Listings are empty, and uploads cannot be read back, but ``give-N`` can be read (see `null_s3`).
"""

from __future__ import annotations

import itertools
import json
import re
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, Popen
from urllib.parse import parse_qs, unquote, urlsplit

from null_s3 import MIB, _Connection, _Object, _Store, _xml

# The size of a read if there is a rate: small enough for connections to get equal shares.
_SIP = 64 << 10


class _Wire:
    """Limits the rate of all connections together."""

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self._free = 0.0
        self._lock = threading.Lock()

    def let(self, size: int) -> None:
        with self._lock:
            self._free = max(self._free, time.monotonic()) + size / self.rate
            wait = self._free - time.monotonic()
        time.sleep(max(0.0, wait))


class _S3(_Connection):
    wire: _Wire

    def _answer(self, head: str) -> None:
        if head.startswith("GET ") and "list-type=2" in head.partition("\r\n")[0]:
            self._reply(200, [], _xml("ListBucketResult", IsTruncated="false", KeyCount="0"))
        else:
            super()._answer(head)

    def _discard(self, size: int) -> None:
        if not self.wire.rate:
            super()._discard(size)
            return
        while size:
            super()._discard(sip := min(size, _SIP))
            self.wire.let(sip)
            size -= sip


class _Gcs(_S3):
    """GCS's JSON API: sessions with chunks, metadata, ranges, and empty listings."""

    numbers = itertools.count(1)

    def _answer(self, head: str) -> None:
        request, *lines = head.split("\r\n")
        method, target, _ = request.split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        size = int(headers.get("content-length", 0))
        url = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        key = unquote(url.path.partition("/o/")[2])
        if method == "POST":
            body = self._body(size)
            upload = str(next(self.numbers))
            self.store.uploads[upload] = _Object(0, [query.get("name") or json.loads(body)["name"]])
            self._reply(200, [f"Location: http://{headers['host']}{url.path}?upload_id={upload}"])
        elif method == "PUT":
            self._discard(size)
            self._take(query["upload_id"], size, headers)
        elif method == "DELETE":
            self._reply(204, [])
        elif not key:
            self._json({"kind": "storage#objects"})
        elif query.get("alt") == "media":
            self._give(method, key, headers.get("range", ""))
        else:
            found = self.store.find(key)
            if found is None:
                self._json({"error": {"code": 404, "message": "none"}}, 404)
            else:
                self._describe(key, found)

    def _body(self, size: int) -> bytes:
        while len(self.held) < size and (block := self.socket.recv(65536)):
            self.held += block
        body, self.held = self.held[:size], self.held[size:]
        return body

    def _take(self, upload: str, size: int, headers: dict[str, str]) -> None:
        session = self.store.uploads[upload]
        session.size += size
        if headers.get("content-range", "").endswith("/*"):
            self._reply(308, [f"Range: bytes=0-{session.size - 1}"] if session.size else [])
            return
        made = _Object(session.size, [re.sub("^crc32c=", "", headers.get("x-goog-hash", ""))])
        self.store.objects[session.headers[0]] = made
        self._describe(session.headers[0], made)

    def _describe(self, key: str, found: _Object) -> None:
        about = {"name": key, "size": str(found.size), "generation": "1", "updated": "2026-01-02T03:04:05Z"}
        self._json(about | ({"crc32c": found.headers[0]} if found.headers else {}))

    def _give(self, method: str, key: str, wanted: str) -> None:
        self.store.objects.pop(key, None)  # only `give-N` has content; the headers are not needed
        super()._give(method, key, wanted)

    def _json(self, value: object, status: int = 200) -> None:
        self._reply(status, ["Content-Type: application/json"], json.dumps(value).encode())


class _Azure(_S3):
    """Azure's blobs, put in one piece or in blocks, with properties, ranges, and empty listings."""

    def _answer(self, head: str) -> None:
        request, *lines = head.split("\r\n")
        method, target, _ = request.split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        size = int(headers.get("content-length", 0))
        url = urlsplit(target)
        what = parse_qs(url.query).get("comp", [""])[0]
        key = unquote(url.path).lstrip("/").partition("/")[2]
        if method == "PUT":
            self._discard(size)
            self._take(what, key, size, headers)
        elif method == "DELETE":
            self.store.objects.pop(key, None)
            self._reply(202, [])
        elif what == "list":
            self._reply(200, ["Content-Type: application/xml"], _xml("EnumerationResults", Blobs="", NextMarker=""))
        elif self.store.find(key) is None:
            self._reply(404, ["x-ms-error-code: BlobNotFound"])
        else:
            self._give(method, key, headers.get("x-ms-range") or headers.get("range", ""))

    def _take(self, what: str, key: str, size: int, headers: dict[str, str]) -> None:
        if what == "block":
            self.store.uploads.setdefault(key, _Object()).size += size
            crc = headers.get("x-ms-content-crc64")
            self._reply(201, [] if crc is None else [f"x-ms-content-crc64: {crc}"])
            return
        if what == "blocklist":
            size = self.store.uploads.pop(key).size
        kept = [f"{name}: {value}" for name, value in headers.items() if name.startswith("x-ms-meta-")]
        self.store.objects[key] = _Object(size, ["x-ms-blob-type: BlockBlob", *kept])
        self._reply(201, ['ETag: "of-no-content"', f"Last-Modified: {self.store.date}"])


def serve(kind: str, tile: Path, rate: int) -> None:
    """Serve until standard input ends, which also happens if the benchmark is killed."""
    store = _Store(tile)
    handler: type[_S3] = {"s3": _S3, "gcs": _Gcs, "azure": _Azure}[kind]
    handler.wire = _Wire(rate)
    listening = socket.create_server(("127.0.0.1", 0), backlog=128)
    if rate:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, MIB // 4)  # limits what the kernel buffers

    def accept() -> None:
        while True:
            connection, _ = listening.accept()
            threading.Thread(target=handler(store, connection).serve, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    print(listening.getsockname()[1], flush=True)
    sys.stdin.buffer.read()


@contextmanager
def null_store(kind: str, tile: Path, *, rate: int = 0) -> Iterator[str]:
    """Start a server in a separate process; yield its endpoint."""
    command = [sys.executable, __file__, kind, str(tile), str(rate)]
    with Popen(command, stdin=PIPE, stdout=PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.stdin.close()


if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
