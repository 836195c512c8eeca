"""`MemberStream` decompresses GZIP members, starting at a given one. `MemberStarts` records where each one begins."""

from __future__ import annotations

from bisect import bisect_right

from asyncrec._framing.compression import Decompressor
from asyncrec.errors import FormatError

_STEP = 256 << 10
_TOGETHER = 64 << 10

# The maximum number of members whose beginnings are kept. Only a crafted file has more members within one record.
_STARTS = 4096


class MemberStream:
    """An object's decompressed bytes, starting with the member at ``origin``.

    Args:
        type: ``"GZIP"`` or ``"ZLIB"``.
        origin: the offset of the member in the object.
        fault: the offset in the object at which an earlier attempt failed. This time, all data before the fault is
            returned.
        given_before: the number of decompressed bytes that an earlier attempt returned. They are skipped this time.
    """

    def __init__(self, type: str, origin: int, *, fault: int | None = None, given_before: int = 0) -> None:
        self.origin = origin
        self._fault = fault
        self._decompressor = Decompressor(type, fault=None if fault is None else fault - origin)
        self._made = 0
        self._given_before = given_before

    @property
    def member(self) -> int:
        """The offset in the object of the last member read, or of the damaged member."""
        return self.origin + self._decompressor.member_offset

    @property
    def fault(self) -> int:
        """The offset in the object at which decompression failed."""
        return self.origin + self._decompressor.consumed

    @property
    def made_of_member(self) -> int:
        """The number of decompressed bytes read from `member`."""
        return self._made - self._decompressor.member_start

    def is_known_fault(self, member: int, fault: int) -> bool:
        """Return whether this stream began at ``member`` to read the data before this fault, or before one near it."""
        return member == self.origin and self._fault is not None and fault <= self._fault + _STEP

    def feed(self, data: bytes) -> None:
        """Append the next bytes of the object."""
        self._decompressor.feed(data)

    def finish(self) -> None:
        """Mark the end of the object.

        Raises:
            TruncatedError: the object ended inside a member.
        """
        self._decompressor.finish()

    def read(self, wanted: int) -> bytes:
        """Return the next decompressed bytes: up to ``wanted`` or, if it is 0, up to 256 KiB.

        Near a known fault, where the input is decompressed byte by byte, several outputs are joined.
        """
        decompressor = self._decompressor
        output = decompressor.read(wanted or _STEP)
        if self._fault is None or not output:
            return output
        parts, size = [output], len(output)
        while size < _TOGETHER and not decompressor.between_members:
            try:
                output = decompressor.read(_STEP)
            except FormatError:  # the next call raises it again
                break
            if not output:
                break
            parts.append(output)
            size += len(output)
        return b"".join(parts)

    def without_given(self, output: bytes) -> bytes | None:
        """Count ``output``, and return the part that no earlier attempt returned; `None` if all of it was returned."""
        self._made += len(output)
        if not self._given_before:
            return output
        again = min(self._given_before, len(output))
        self._given_before -= again
        return output[again:] or None


class MemberStarts:
    """Where members begin: their offsets in the object and in the decompressed stream, and their first records.

    Attributes:
        members: one pair for each member that begins with a record: the number of that record, and the offset of the
            member in the object. They cover the records read last, and one earlier pair comes first.
        whole_from: the last of these pairs, or `None` if damage was found after it.
        passed_on: the number of bytes of the decompressed stream that have been processed.
    """

    def __init__(self, start: int, records: int) -> None:
        self.members = [(records, start)]
        self.whole_from: tuple[int, int] | None = None
        self.passed_on = 0
        self._starts = [(0, start)]  # offsets in the stream and in the object

    def place(self, offset: int) -> tuple[int, int]:
        """Return where the member that contains byte ``offset`` of the stream begins, in the stream and the object."""
        return self._starts[max(bisect_right(self._starts, offset, key=lambda each: each[0]) - 1, 0)]

    def is_new(self, byte: int) -> bool:
        """Return whether `begin` has not yet been called for the member at ``byte`` of the object."""
        return byte > self._starts[-1][1]

    def begin(self, byte: int) -> None:
        """Record that the stream continues with the member at ``byte`` of the object."""
        self._starts.append((self.passed_on, byte))
        if len(self._starts) > _STARTS:
            del self._starts[: _STARTS // 2]

    def begin_with_record(self, record: int, byte: int) -> None:
        """Record that the member at ``byte`` begins with ``record``, so that reading can start again from there."""
        self.members.append((record, byte))
        self.whole_from = self.members[-1]
