"""An S3 store that serves the files of a folder, with a delay before each response; like `null_s3`, but with content.

    python tests/benchmarks/folder_s3.py FOLDER DELAY_MS

prints its port, and serves 127.0.0.1 until its standard input ends. Its only bucket, ``bench``, contains the files in
FOLDER, which do not change. It supports GET with ranges, HEAD and ListObjectsV2; uploads are discarded. ``GET
/?counts`` returns, as JSON and without a delay, the requests since the last ``GET /?reset``:

    requests      requests by kind
    connections   the maximum number of open connections
    answering     the maximum number of concurrent requests
    depth         the maximum number of sequential requests (each begun after another ended)
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from null_s3 import _Connection, _Object, _Store, _xml


class _Folder(_Store):
    def __init__(self, folder: Path, delay: float) -> None:
        super().__init__(Path(os.devnull))
        self.folder = folder
        self.delay = delay
        self.lock = threading.Lock()
        self.connections = self.answering = 0
        self.reset()

    def reset(self) -> None:
        """Restart counting."""
        self.counted: dict[str, Any] = {
            "requests": Counter(),
            "connections": self.connections,
            "answering": self.answering,
            "depth": 0,
        }
        self.ended = 0  # the depth of the deepest request that has ended

    def count(self, name: str, value: int) -> None:
        self.counted[name] = max(self.counted[name], value)

    def find(self, key: str) -> _Object | None:
        found = self.objects.get(key)
        if found is None:
            try:
                file = os.open(self.folder / unquote(key), os.O_RDONLY)
            except OSError:
                return None
            found = self.objects[key] = _Object(os.fstat(file).st_size, file=file)
        return found

    def listed(self, query: dict[str, list[str]]) -> bytes:
        """Respond to ListObjectsV2; every key is the path of a file in the bucket."""

        def of(name: str) -> str:
            return query.get(name, [""])[0]

        prefix, delimiter = of("prefix"), of("delimiter")
        after, most = of("continuation-token") or of("start-after"), int(of("max-keys") or 1000)
        rows: list[str] = []
        last, folders, more = "", set(), False
        for path in sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file()):
            if not path.startswith(prefix) or path <= after:
                continue
            if len(rows) == most:
                more = True
                break
            head, found, _ = path[len(prefix) :].partition(delimiter) if delimiter else (path, "", "")
            last = path
            if not found:
                size, etag = (self.folder / path).stat().st_size, "&quot;of-no-content-1&quot;"
                rows.append(
                    f"<Contents><Key>{escape(path)}</Key><Size>{size}</Size><ETag>{etag}</ETag>"
                    "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
                )
            elif head not in folders:
                folders.add(head)
                rows.append(f"<CommonPrefixes><Prefix>{escape(prefix + head + delimiter)}</Prefix></CommonPrefixes>")
        said = _xml("ListBucketResult", IsTruncated=str(more).lower(), KeyCount=str(len(rows)))
        more_from = f"<NextContinuationToken>{escape(last)}</NextContinuationToken>" if more else ""
        return said.replace(b"</ListBucketResult>", f"{more_from}{''.join(rows)}</ListBucketResult>".encode())


class _FolderConnection(_Connection):
    store: _Folder

    def serve(self) -> None:
        store = self.store
        with store.lock:
            store.connections += 1
            store.count("connections", store.connections)
        try:
            super().serve()
        finally:
            with store.lock:
                store.connections -= 1

    def _answer(self, head: str) -> None:
        store = self.store
        method, target, _ = head.partition("\r\n")[0].split(" ")
        query = parse_qs(urlsplit(target).query, keep_blank_values=True)
        if "counts" in query or "reset" in query:
            with store.lock:
                counts = json.dumps(store.counted).encode()
                if "reset" in query:
                    store.reset()
            self._reply(200, [], counts)
            return
        kind = "LIST" if "list-type" in query else f"{method} range" if "\r\nrange:" in head.lower() else method
        with store.lock:
            counted, depth = store.counted, store.ended + 1
            counted["requests"][kind] += 1
            store.answering += 1
            store.count("answering", store.answering)
            store.count("depth", depth)
        try:
            time.sleep(store.delay)
            if kind == "LIST":
                self._reply(200, [], store.listed(query))
            else:
                super()._answer(head)
        finally:
            with store.lock:
                store.answering -= 1
                if store.counted is counted:
                    store.ended = max(store.ended, depth)


def serve(folder: Path, delay: float) -> None:
    """Serve until standard input ends, which also happens if the benchmark is killed."""
    sys.setswitchinterval(0.0005)
    store = _Folder(folder, delay)
    listening = socket.create_server(("127.0.0.1", 0), backlog=256)

    def accept() -> None:
        while True:
            connection, _ = listening.accept()
            threading.Thread(target=_FolderConnection(store, connection).serve, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    print(listening.getsockname()[1], flush=True)
    sys.stdin.buffer.read()


@contextmanager
def folder_s3(folder: Path, delay: float) -> Iterator[str]:
    """Start a server in a separate process with a delay for each request; yield its endpoint."""
    command = [sys.executable, __file__, str(folder), str(delay * 1000)]
    with Popen(command, stdin=PIPE, stdout=PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.stdin.close()


if __name__ == "__main__":
    serve(Path(sys.argv[1]), float(sys.argv[2]) / 1000)
