"""`FormatConformance`: the pytest cases that a plugin's format must pass, on both event loops.

In a plugin's tests::

    class TestLines(FormatConformance):
        plugin = "asyncrec_lines"                   # the module that the entry point names
        name = "lines"

        def records(self): ...                      # some Examples; the first is not the largest
        def content(self): ...                      # a file with exactly these records, made without the plugin

and an ``anyio_backend`` fixture that names the event loops. For a write-only format, `content` returns `None`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio.lowlevel
import pytest

import asyncrec
from asyncrec.errors import ExampleError
from asyncrec.plugins._kinds import BadMember, Converted, Format
from asyncrec.testing._cancellation import cancel_at_every_checkpoint
from asyncrec.testing._kit import PluginKit, nothing_to_try
from asyncrec.tools._formats import Formats

_LIMIT = 256 << 20
_NOT_READ = "content() returns None, so the format cannot be read"


class FormatConformance(PluginKit):
    """The cases that every format must pass. Derive from this class, and implement `records` and `content`.

    Attributes:
        name: the name of the format.
    """

    pytestmark = pytest.mark.anyio

    name: str

    def records(self) -> list[bytes]:
        """Return at least three records, each a tf.train.Example."""
        raise self.missing("records")

    def content(self) -> bytes | None:
        """Return a file with exactly `records`, made without the plugin, or `None` if the format is write-only."""
        raise self.missing("content")

    @pytest.fixture(autouse=True)
    def _set_up(self, tmp_path: Path) -> None:
        self._folder = tmp_path

    async def format(self) -> Format:
        """Return the format as asyncrec loads it."""
        formats = Formats(self.plugins())
        await formats.look_for(self.name)
        return formats.get(self.name)

    async def test_registration(self) -> None:
        """The plugin loads without errors. Its format has a unique name and suffixes, and can be read or written."""
        plugins = self.plugins()
        formats = Formats(plugins)
        await formats.look_for(self.name)
        assert plugins.broken == {}
        given = formats.get(self.name)
        assert (given.open is not None) == (self.content() is not None), (
            "content() must be None if and only if open is None"
        )
        for suffix in given.suffixes:
            assert formats.of(f"some/file{suffix.upper()}") == self.name

    async def test_records_read(self) -> None:
        given, content = await self.format(), self.content()
        if content is None:
            nothing_to_try(_NOT_READ)
        found = await self._read(given, content)
        assert _decoded(found.records) == _decoded(self.records())
        assert found.bad == []

    async def test_reads_in_any_chunks(self) -> None:
        """The same records are read whether the bytes arrive one at a time, as over a slow link, or all at once."""
        given, content = await self.format(), self.content()
        if content is None:
            nothing_to_try(_NOT_READ)
        for most in (1, 7, 4096):
            assert (await self._read(given, content, most=most)).records == (await self._read(given, content)).records

    async def test_empty_file(self) -> None:
        given = await self.format()
        if given.open is None:
            nothing_to_try(_NOT_READ)
        assert (await self._read(given, b"")).records == []

    async def test_damaged_file(self) -> None:
        """A damaged file yields no extra records. Each invalid part is reported with its position in the file."""
        given, content = await self.format(), self.content()
        if content is None:
            nothing_to_try(_NOT_READ)
        for at in range(0, len(content), max(1, len(content) // 25)):
            cut = await self._read(given, content[:at])
            assert len(cut.records) <= len(self.records())
            flipped = bytearray(content)
            flipped[at] ^= 0x55
            for found in (cut, await self._read(given, bytes(flipped))):
                for bad in found.bad:
                    assert isinstance(bad, BadMember)
                    assert bad.path == "the/file"
                    assert bad.where
                    assert bad.reason

    async def test_record_too_large(self) -> None:
        given, content = await self.format(), self.content()
        if content is None:
            nothing_to_try(_NOT_READ)
        largest = max(map(len, self.records()))
        found = await self._read(given, content, limit=largest - 1)
        assert all(len(record) < largest for record in found.records)
        assert found.bad

    async def test_early_exit_and_cancellation(self) -> None:
        """The local copy of the file is released even if the reader exits early or is cancelled."""
        given, content = await self.format(), self.content()
        if content is None or given.open is None:
            nothing_to_try(_NOT_READ)
        opening, file = given.open, _File(self._folder, content)

        async def begin() -> None:
            async with opening(file) as reading:
                await anext(reading, None)

        async def nothing_is_left() -> None:
            assert file.copies == 0

        await begin()
        await nothing_is_left()

        async def read() -> None:
            file.position = 0
            await begin()

        await cancel_at_every_checkpoint(read, after=nothing_is_left)

    async def test_schema_fits_records(self) -> None:
        given, content = await self.format(), self.content()
        if content is None:
            nothing_to_try(_NOT_READ)
        if given.schema is None:
            nothing_to_try("the format has no schema")
        given.schema().decode_batch((await self._read(given, content)).records)

    async def test_round_trip(self) -> None:
        """Records that are written with their inferred schema, in one call or one per call, are read back unchanged."""
        given = await self.format()
        if given.encoder is None:
            nothing_to_try("the format has no encoder, so it cannot be written")
        records = self.records()
        schema = asyncrec.Schema.infer(records).to_json()
        suffix = given.suffixes[0] if given.suffixes else ""
        for pieces in ([records], [[record] for record in records]):
            encoder = given.encoder(f"some/file{suffix}", schema)
            written = b"".join([*map(encoder.encode, pieces), encoder.finish()])
            assert written
            if given.open is not None:
                assert _decoded((await self._read(given, written)).records) == _decoded(records)

    async def test_feature_lists(self) -> None:
        """A SequenceExample is written with its feature lists, or rejected, but its lists are not left out."""
        given = await self.format()
        if given.encoder is None:
            nothing_to_try("the format has no encoder, so it cannot be written")
        features = asyncrec.decode_example(self.records()[0])
        record = asyncrec.encode_sequence_example(features, {"steps": [[1], [2, 3]]})
        encoder = given.encoder("some/file", asyncrec.Schema.infer([asyncrec.encode_example(features)]).to_json())
        try:
            written = encoder.encode([record]) + encoder.finish()
        except ExampleError:
            return
        assert given.open is not None, "a format that cannot be read back must reject feature lists"
        (found,) = (await self._read(given, written)).records
        assert [*asyncrec.decode_sequence_example(found)[1]] == ["steps"], "the feature lists were left out"

    async def _read(self, given: Format, content: bytes, *, most: int = 1 << 20, limit: int = _LIMIT) -> Converted:
        """Read an entire file and return its records and invalid parts."""
        assert given.open is not None
        found = Converted()
        async with given.open(_File(self._folder, content, most=most, limit=limit)) as reading:
            async for piece in reading:
                assert isinstance(piece, Converted)
                assert len(piece.keys) in (0, len(piece.records)), "either all records or none must have keys"
                found.records += piece.records
                found.bad += piece.bad
                found.passed += piece.passed
        return found


class _File:
    """A `SourceFile` that returns at most ``most`` bytes per call and counts its open local copies."""

    def __init__(self, folder: Path, content: bytes, *, most: int = 1 << 20, limit: int = _LIMIT) -> None:
        self.path = "the/file"
        self.max_record_bytes = limit
        self.copies = 0
        self.position = 0
        self._folder, self._content, self._most = folder, content, most

    async def receive(self, max_bytes: int) -> bytes:
        await anyio.lowlevel.checkpoint()
        begin = self.position
        self.position += min(max_bytes, self._most)
        return self._content[begin : self.position]

    def local_copy(self) -> _Copy:
        path = self._folder / "copy"
        path.write_bytes(self._content)
        return _Copy(self, str(path))


class _Copy:
    """A local copy. This is not a generator, which garbage collection would close even if the plugin never does."""

    def __init__(self, file: _File, path: str) -> None:
        self._file, self._path = file, path

    async def __aenter__(self) -> str:
        await anyio.lowlevel.checkpoint()
        self._file.copies += 1
        return self._path

    async def __aexit__(self, *error: object) -> None:
        self._file.copies -= 1


def _decoded(records: Sequence[bytes]) -> list[dict[str, Any]]:
    """Decode the records for comparison, because equal Examples may have different encodings."""
    return [
        {name: list(values) for name, values in sorted(asyncrec.decode_example(record).items())} for record in records
    ]
