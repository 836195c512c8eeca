"""The JSON lines format: one JSON object per line, which becomes one record, in a plain or GZIP file.

A line is reported and skipped if it is not a JSON object, has a value that fits no feature, or has too many values to
fit in memory. Three bytes (``[],``) become a Python object of 64 bytes, so values are counted before a line is parsed.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from asyncrec._concurrency.tasks import in_thread
from asyncrec._framing.compression import Decompressor
from asyncrec.errors import ExampleError, FormatError
from asyncrec.plugins._hookspecs import hookimpl
from asyncrec.plugins._kinds import BadMember, Converted, Format, SourceFile
from asyncrec.tools._json_values import from_json, lists_of, to_json

_BLOCK = 1 << 20
_GZIP = b"\x1f\x8b"
# The approximate size of a Python value. In total, the values in a line may take as much memory as the largest record.
_VALUE_BYTES = 64
# The constants that some programs write for values that JSON has no number for.
_CONSTANTS = {name: {"$float": text} for name, text in (("NaN", "nan"), ("Infinity", "inf"), ("-Infinity", "-inf"))}


@asynccontextmanager
async def open_lines(file: SourceFile) -> AsyncIterator[AsyncIterator[Converted]]:
    """Yield an iterator over the records of one file."""
    yield _Lines(file)


class _Lines:
    def __init__(self, file: SourceFile) -> None:
        self._file = file
        self._parser = _Parser(file.path, file.max_record_bytes)
        self._ended = False

    def __aiter__(self) -> _Lines:
        return self

    async def __anext__(self) -> Converted:
        while not self._ended:
            if not self._parser.pending:
                block = await self._file.receive(_BLOCK)
                self._ended = not block
                converted = await in_thread(self._parser.feed, block)
            else:
                converted = await in_thread(self._parser.feed, None)
            if self._parser.lost:
                self._ended = True
            if converted.records or converted.bad:
                return converted
        raise StopAsyncIteration


class _Parser:
    """A parser that is fed chunks of bytes and returns records. Feeding it blocks the thread.

    Attributes:
        pending: whether the bytes fed to it may contain more records.
        lost: whether the rest of the file cannot be read.
    """

    def __init__(self, path: str, max_record_bytes: int) -> None:
        self.pending = False
        self.lost = False
        self._path = path
        self._most = max_record_bytes
        self._decompressor: Decompressor | None = None
        self._begun = False
        self._first = b""  # first bytes, kept until the file's compression is known
        self._rest: list[bytes] = []  # the parts of the current, incomplete line
        self._rest_bytes = 0
        self._line = 0

    def feed(self, block: bytes | None) -> Converted:
        """Return the records that end in ``block``: pass ``b""`` at the file's end, or `None` for pending records."""
        result = Converted()
        at_end = block == b""
        if not self._begun and block is not None:
            self._first += block
            if not at_end and len(self._first) < len(_GZIP):
                return result
            self._begun = True
            if self._first.startswith(_GZIP):
                self._decompressor = Decompressor("GZIP")
            block = self._first
        if self._decompressor is None:
            self._lines(block or b"", at_end, result)
            return result
        try:
            if block:
                self._decompressor.feed(block)
            output = self._decompressor.read(_BLOCK) if not at_end else b""
            self.pending = bool(output)
            if at_end:
                self._decompressor.finish()
            self._lines(output, at_end, result)
        except FormatError as error:
            self.lost = True
            result.bad.append(self._bad(f"the compressed stream is damaged, so the rest is lost: {error}"))
        return result

    def _lines(self, block: bytes, at_end: bool, result: Converted) -> None:
        self._rest.append(block)
        self._rest_bytes += len(block)
        lines: list[bytes] = []
        if at_end or b"\n" in block:
            lines = b"".join(self._rest).split(b"\n")
            self._rest = [] if at_end else [lines.pop()]
            self._rest_bytes = sum(map(len, self._rest))
        for line in lines:
            self._line += 1
            if not line.strip():
                continue
            try:
                result.records.append(from_json(self._parsed(line)))
            except (ValueError, RecursionError, ExampleError) as error:
                result.bad.append(self._bad(str(error)))
        if self._rest_bytes > self._most:
            self._line += 1
            self._rest, self.lost = [], True
            reason = (
                f"the line is longer than {self._most:,} bytes, so this is not a JSON lines file; the rest was not read"
            )
            result.bad.append(self._bad(reason))

    def _parsed(self, line: bytes) -> Any:
        # Commas and brackets within strings are also counted, because tokenizing the line would not be worth the time.
        values = sum(map(line.count, (b",", b"[", b"{")))
        most = self._most // _VALUE_BYTES
        if values > most:
            raise ExampleError(
                f"the line has {values:,} commas and brackets, but the limit is {most:,}; write large arrays as "
                '{"$base64": "..."}, or as Parquet'
            )
        return json.loads(line, parse_constant=_CONSTANTS.__getitem__)

    def _bad(self, reason: str) -> BadMember:
        return BadMember(self._path, f"line {self._line}", reason)


class JsonLinesEncoder:
    """Encodes records as the bytes of a JSON lines file. The methods block."""

    def __init__(self, *, lists: Collection[str], compressed: bool) -> None:
        self._lists = lists
        self._compressor = zlib.compressobj(wbits=31) if compressed else None

    def encode(self, records: Sequence[bytes]) -> bytes:
        lines = [json.dumps(to_json(record, lists=self._lists), ensure_ascii=False) for record in records]
        data = ("\n".join(lines) + "\n").encode() if lines else b""
        return data if self._compressor is None else self._compressor.compress(data)

    def finish(self) -> bytes:
        return b"" if self._compressor is None else self._compressor.flush()


def _encoder(name: str, schema: Mapping[str, Any] | None) -> JsonLinesEncoder:
    return JsonLinesEncoder(lists=lists_of(schema), compressed=name.endswith(".gz"))


@hookimpl
def asyncrec_formats() -> Iterable[Format]:
    suffixes = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz")
    return [Format(name="jsonl", suffixes=suffixes, open=open_lines, encoder=_encoder)]
