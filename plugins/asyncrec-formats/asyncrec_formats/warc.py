"""WARC files (web archives), plain or GZIP. Each response, resource and revisit becomes a page (`asyncrec.pages`).

warcio parses the records. The content of a page is the body without its transfer and content encodings. The content of
a revisit is empty, because the body is in another record with the same digest. A request record adjacent to its
response adds its method and headers to the page. The key is `asyncrec.pages.page_key`, the URL for a GET request.

A body may decode to a thousand times its size, so records are created in batches that fit in memory, and a record that
exceeds the limit is bad. A damaged GZIP member or record is bad, and reading continues at the next valid beginning.
Records of other types (request, metadata, warcinfo) are counted but not returned.

No byte is searched twice, because the search for the next record begins after the bytes that were searched for a bad
record's header.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from asyncrec import pages
from asyncrec.errors import ExampleError
from asyncrec.plugins import BadMember, Converted, SourceFile
from asyncrec.storage import in_thread

from .warc_members import GZIP, Members
from .warc_pages import Page, Request, encoded, parsed

_BLOCK = 256 << 10
_HEADER_BYTES = 1 << 20
# The total size of records returned together, and the size counted for a bad record.
_AT_ONCE = 16 << 20
_SMALL = 1 << 10
_HEADER_END = b"\r\n\r\n"
_NEXT = re.compile(rb"WARC/1\.[01]\r\n")
_NEXT_BYTES = len(b"WARC/1.0\r\n")
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,15})[ \t]*\r\n", re.IGNORECASE)


@asynccontextmanager
async def open_warc(file: SourceFile) -> AsyncIterator[AsyncIterator[Converted]]:
    """Open a WARC file, and yield an iterator over its records."""
    yield _Warc(file)


class _Warc:
    def __init__(self, file: SourceFile) -> None:
        self._file = file
        self._parser = _Parser(file.path, file.max_record_bytes)
        self._pending: Iterator[Converted] = iter(())
        self._ended = False

    def __aiter__(self) -> _Warc:
        return self

    async def __anext__(self) -> Converted:
        while True:
            converted: Converted | None = await in_thread(next, self._pending, None)
            if converted is not None:
                return converted
            if self._ended:
                raise StopAsyncIteration
            block = await self._file.receive(_BLOCK)
            self._ended = not block
            self._pending = self._parser.feed(block)


class Made(NamedTuple):
    """A page's record and key."""

    record: bytes
    key: str


class _Parser:
    """A parser that converts the blocks of a file to records. Its methods block."""

    def __init__(self, path: str, max_record_bytes: int) -> None:
        self._path = path
        self._most = max_record_bytes
        self._members: Members | None = None
        self._records = _Records(max_record_bytes)
        self._begun = False
        self._first = b""  # the first bytes, until the compression is known
        self._where = ""
        self._page: Page | None = None  # the last page, in case its request follows
        self._request: Request | None = None  # the last request, in case its response follows

    def feed(self, block: bytes) -> Iterator[Converted]:
        """Yield the records that a block completes, in groups. The caller must exhaust them. ``b""`` ends the file."""
        result, size = Converted(), 0
        for converted in self._each(block):
            if isinstance(converted, Made):
                result.records.append(converted.record)
                result.keys.append(converted.key)
                size += len(converted.record)
            elif isinstance(converted, BadMember):
                result.bad.append(converted)
                size += _SMALL
            else:
                result.passed += 1
            if size >= _AT_ONCE:
                yield result
                result, size = Converted(), 0
        if result.records or result.bad or result.passed:
            yield result

    def _each(self, block: bytes) -> Iterator[Made | BadMember | None]:
        """Yield records, bad members, and `None` for records of other types."""
        if not self._begun:
            self._first += block
            if block and len(self._first) < len(GZIP):
                return
            self._begun = True
            if self._first.startswith(GZIP[:2]):
                self._members = Members()
            if not block:
                yield from self._take(self._records.feed(self._first))
            else:
                block = self._first
        if self._members is None:
            yield from self._take(self._records.feed(block))
        else:
            for offset, output in self._members.feed(block):
                if isinstance(output, str):
                    yield from self._hand_on()
                    yield BadMember(self._path, f"byte {offset:,}", output)
                    self._records.drop()
                else:
                    yield from self._take(self._records.feed(output))
        if not block:
            yield from self._take(self._records.finish())
            yield from self._hand_on()

    def _take(self, found: Iterator[tuple[int, bytes | str]]) -> Iterator[Made | BadMember | None]:
        for offset, record in found:
            # In a compressed file, the offset counts decompressed bytes.
            where = f"byte {offset:,}" + (" of the decompressed content" if self._members else "")
            if isinstance(record, str):
                yield from self._hand_on()
                yield BadMember(self._path, where, record)
                continue
            try:
                found_there = parsed(record, self._most)
            except ExampleError as error:
                yield from self._hand_on()
                yield BadMember(self._path, where, str(error))
                continue
            except Exception as error:  # warcio raises ValueError, KeyError and its own errors
                yield from self._hand_on()
                yield BadMember(self._path, where, f"{type(error).__name__}: {error}")
                continue
            yield from self._paired(found_there, where)

    def _paired(self, found: Page | Request | None, where: str) -> Iterator[Made | BadMember | None]:
        if isinstance(found, Page):
            yield from self._hand_on()
            if self._request is not None and found.take(self._request):
                self._request = None
            self._page, self._where = found, where
            return
        if isinstance(found, Request) and (self._page is None or not self._page.take(found)):
            self._request = found
        yield None

    def _hand_on(self) -> Iterator[Made | BadMember]:
        """Yield the pending page, if any, because no request will follow."""
        if self._page is None:
            return
        page, self._page = self._page, None
        try:
            made = Made(encoded(page, self._most), pages.page_key(page.features))
        except ExampleError as error:
            yield BadMember(self._path, self._where, str(error))
        else:
            yield made


class _Records:
    """A parser of plain WARC. It yields ``(offset, record)``, with the header, or ``(offset, reason)`` for damage."""

    def __init__(self, max_record_bytes: int) -> None:
        self._most = max_record_bytes
        self._held = bytearray()
        self._base = 0
        self._skip = 0
        self._lost = False  # whether to search for the next record, after reported damage
        self._searched = 0  # the number of bytes already searched for a header's end, or for a record
        self._size = 0  # the size of the current record; 0 until its header has been read

    def feed(self, block: bytes) -> Iterator[tuple[int, bytes | str]]:
        self._held += block
        while self._held:
            if self._skip:
                passed = min(self._skip, len(self._held))
                self._drop(passed)
                self._skip -= passed
                continue
            if self._size:
                if len(self._held) < self._size:
                    return
                yield self._base, bytes(self._held[: self._size])
                self._drop(self._size)
                continue
            if self._lost:
                if not self._to_next():
                    return
                self._lost = False
                continue
            while self._held[:2] == b"\r\n":  # two line breaks end a record
                self._drop(2)
            if self._held == b"\r":
                return
            if self._held[:5] != b"WARC/"[: len(self._held)]:
                yield self._base, "no WARC record begins here"
                self._lose(1)
                continue
            end = self._held.find(_HEADER_END, self._searched, _HEADER_BYTES)
            if end < 0:
                if len(self._held) < _HEADER_BYTES:
                    self._searched = max(0, len(self._held) - len(_HEADER_END) + 1)
                    return
                yield self._base, "the record header has no end"
                self._lose(_HEADER_BYTES)
                continue
            length = _LENGTH.search(self._held, 0, end + 2)
            if length is None:
                yield self._base, "the record header has no Content-Length"
                self._lose(end)
                continue
            size = end + len(_HEADER_END) + int(length[1])
            if size > self._most:
                yield self._base, f"the record has {size:,} bytes, more than the limit of {self._most:,}"
                self._skip = size
            else:
                self._size = size

    def finish(self) -> Iterator[tuple[int, bytes | str]]:
        if self._held.strip(b"\r\n") and not self._lost:
            yield self._base, "the file ends inside a record"
        self.drop()

    def drop(self) -> None:
        """Discard an incomplete record."""
        self._drop(len(self._held))
        self._skip = 0
        self._lost = False

    def _lose(self, searched: int) -> None:
        self._lost = True
        self._searched = searched

    def _to_next(self) -> bool:
        match = _NEXT.search(self._held, self._searched)
        # Keep the last bytes, with which a record may begin.
        self._drop(max(self._searched, len(self._held) - _NEXT_BYTES + 1) if match is None else match.start())
        return match is not None

    def _drop(self, count: int) -> None:
        del self._held[:count]
        self._base += count
        self._searched = self._size = 0
