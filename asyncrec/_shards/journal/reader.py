"""`JournalReader` reads the complete records of a file that its writer did not finish. Use it in worker threads.

The reader starts at the beginning of the file and stops at the first part that is not a complete record. After a crash,
this is normally the torn tail: a frame that was cut off, or zeros that the filesystem returns for data that was never
written. All flushed records come before it. Anything else is damage and is reported, because records may follow it.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Collection, Iterator
from contextlib import suppress

from asyncrec._framing.frames import FRAME_OVERHEAD, FrameDecoder
from asyncrec._records.torn_end import is_torn, most_record_bytes, zeros_from
from asyncrec._records.writing.write_batch import KEY_BYTES
from asyncrec.errors import CorruptRecordError, FormatError, ObjectNotFoundError
from asyncrec.storage._local.disk import read_at
from asyncrec.storage._local.opening import open_own
from asyncrec.storage._local.storage import mapped_errors

_BLOCK = 1 << 20
# When a decompressor hits corrupt data, that call returns no output at all. Therefore the input is fed to it in small
# slices, and a corrupt slice is fed to it again byte by byte.
_SLICE = 32 << 10
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS


class JournalReader:
    """The records of one journal, with the digests of their keys if the journal has a keys file.

    If there is a keys file, only records that have a digest in it are returned: a record's digest is written first.

    Args:
        path: the path of the shard's journal.
        keys: the path of its keys file. If the shard has no keys, `None` or a path at which no file exists.
        other_names: other paths at which these files may be linked (`asyncrec.storage._local.opening.open_own`).
        key_bytes: the number of digest bytes per record in the keys file.
        most: the maximum number of records to return. Any records after them are treated as part of the torn tail.

    Attributes:
        records: the number of records returned so far.
        cut: the number of bytes after the last returned record, decompressed as far as possible; set at the end.
        damage: the error for these bytes, if they are not a torn tail; set at the end.
        modified: the time of the last write to the journal; set by `open`.
    """

    def __init__(
        self,
        path: str,
        keys: str | None,
        *,
        compressed: bool,
        other_names: Collection[str] = (),
        key_bytes: int = KEY_BYTES,
        most: int | None = None,
    ) -> None:
        self.path = path
        self.records = 0
        self.cut = 0
        self.damage: FormatError | None = None
        self.modified = 0.0
        self._keys = keys
        self._key_bytes = key_bytes
        self._other_names = other_names
        self._compressed = compressed
        self._most = most
        self._fd = self._keys_fd = -1
        self._size = 0
        self._batches = self._read()

    def open(self) -> None:
        """Open the files. The constructor does not, so that a caller cancelled during this call can close them.

        Raises:
            StorageError: a file is not a regular file of this user, or has an unknown hard link, or the disk failed.
        """
        self._fd = open_own(self.path, os.O_RDONLY, linked=self._other_names)
        with mapped_errors("reading", self.path):
            status = os.fstat(self._fd)
        self._size, self.modified = status.st_size, status.st_mtime
        if self._keys is not None:
            with suppress(ObjectNotFoundError):
                self._keys_fd = open_own(self._keys, os.O_RDONLY, linked=self._other_names)

    def close(self) -> None:
        """Close the files. Idempotent."""
        for fd in (self._fd, self._keys_fd):
            if fd >= 0:
                os.close(fd)
        self._fd = self._keys_fd = -1

    def next(self) -> tuple[list[bytes], list[bytes] | None] | None:
        """Return the next records, a few megabytes at most, and the digests of their keys. Return `None` at the end."""
        with mapped_errors("reading", self.path):
            return next(self._batches, None)

    def _read(self) -> Iterator[tuple[list[bytes], list[bytes] | None]]:
        decoder = FrameDecoder(max_record_bytes=most_record_bytes(os.fstat(self._fd), compressed=self._compressed))
        fed = 0
        whole = 0  # the number of decompressed bytes up to the end of the last returned record
        for data in self._inflated() if self._compressed else self._blocks(_BLOCK):
            fed += len(data)
            records = decoder.feed(data)
            if self.records == self._most:  # keep reading, to report any damage after the last returned record
                if decoder.error is not None:
                    break
                continue
            keys = None if self._keys_fd < 0 else self._next_keys(len(records))
            short = keys is not None and len(keys) < len(records)
            if short:
                assert keys is not None
                records = records[: len(keys)]
            if self._most is not None and self.records + len(records) > self._most:
                records = records[: self._most - self.records]
                keys = None if keys is None else keys[: len(records)]
            self.records += len(records)
            whole += sum(map(len, records)) + FRAME_OVERHEAD * len(records)
            if records:
                yield records, keys
            if short or decoder.error is not None:
                break
        self.cut = (fed if self._compressed else self._size) - whole
        error = decoder.error
        # A decompressed stream has no torn tail, because all its bytes were written.
        if error is not None and (self._compressed or not is_torn(self._fd, self._size, decoder.offset, error)):
            self.damage = error

    def _next_keys(self, count: int) -> list[bytes]:
        width = self._key_bytes
        data = read_at(self._keys_fd, count * width, self.records * width)
        return [data[at : at + width] for at in range(0, len(data) - width + 1, width)]

    def _blocks(self, size: int) -> Iterator[bytes]:
        position = 0
        while block := os.pread(self._fd, size, position):
            position += len(block)
            yield block

    def _inflated(self) -> Iterator[bytes]:
        stream = None
        position = 0  # the position of the end of the block
        for block in self._blocks(_SLICE):
            position += len(block)
            while block:
                stream = stream or zlib.decompressobj(_GZIP_OR_ZLIB)
                before = stream.copy()
                try:
                    output = stream.decompress(block)
                except zlib.error as error:
                    output, used = _bytewise(before, block)
                    if output:
                        yield output
                    if zeros_from(self._fd, self._size) > position - len(block) + used:
                        self.damage = CorruptRecordError(f"{self.path}: the journal cannot be decompressed ({error})")
                    return
                block = stream.unused_data
                if stream.eof:
                    stream = None
                if output:
                    yield output


def _bytewise(stream: zlib._Decompress, block: bytes) -> tuple[bytes, int]:
    """Decompress a block up to the corrupt data. Return the output and the number of input bytes that it used."""
    output = bytearray()
    for used in range(len(block)):
        try:
            output += stream.decompress(block[used : used + 1])
        except zlib.error:
            return bytes(output), used
    return bytes(output), len(block)
