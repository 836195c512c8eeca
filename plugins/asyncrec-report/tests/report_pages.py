"""Data sets to report on, and a parser for the resulting pages."""

from __future__ import annotations

import re
import struct
import zlib
from html.parser import HTMLParser
from typing import Any

from asyncrec_report import report

import asyncrec
from asyncrec.storage._base import Storage
from asyncrec.storage._memory import MemoryStorage

MIB = 1 << 20


class Page(HTMLParser):
    """A parsed page: its contents, after checking that nothing in it could run or load."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.html = html
        self.text = ""
        self.images: list[dict[str, str | None]] = []
        self.places: set[str] = set()
        self.links: set[str] = set()
        self.bars = 0
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == [], "every element is closed"
        assert self.links <= self.places, "every link leads to a place on the page"
        html.encode()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "iframe", "object", "embed", "form", "base", "foreignobject")
        for name, value in attrs:
            assert not name.startswith("on")
            assert name != "style"
            if name == "href" and tag == "a":
                assert value is not None
                assert value.startswith("#")
                self.links.add(value[1:])
            if name in ("href", "src") and tag != "a":
                assert value is not None
                assert value.startswith("data:")
            if name == "id" and value:
                assert value not in self.places
                self.places.add(value)
        if tag == "img":
            self.images.append(dict(attrs))
        self.bars += tag == "rect"
        if tag not in ("meta", "link", "img"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self._open:
            self.text += data + "\n"

    def __contains__(self, text: str) -> bool:
        return text in re.sub(r"\s+", " ", self.text)  # as it is displayed


def png(size: int) -> bytes:
    """Return a complete PNG image of a single colour."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0))
    rows = zlib.compress((b"\0" + b"\x20\x80\xc0" * size) * size)
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


async def written(rows: list[dict[str, Any]], storage: MemoryStorage | None = None, **options: Any) -> MemoryStorage:
    storage = storage or MemoryStorage()
    async with asyncrec.open_sharded_writer("pages", storage=storage, validate="none", **options) as writer:
        for row in rows:
            await writer.write(asyncrec.encode_example(row))
    return storage


async def page_of(path: str, storage: Storage, **options: Any) -> Page:
    return Page((await report(path, storage=storage, **options)).html)


async def change(storage: Storage, key: str, place: int) -> None:
    content = bytearray(await storage.get(key))
    content[place] ^= 1
    await storage.put(key, bytes(content))


async def folder(records: int = 3, size: int = 10, files: int = 8) -> MemoryStorage:
    storage = MemoryStorage()
    for number in range(files):
        await asyncrec.write_records(f"d/{number}.tfrecord", [bytes(size)] * records, storage=storage)
    return storage
