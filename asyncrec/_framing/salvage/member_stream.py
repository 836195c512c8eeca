"""`MemberStream` and `MemberStarts`: what GZIP members decompress to from one of them on, and where each began."""

from __future__ import annotations

from bisect import bisect_right

from asyncrec._framing.compression import Decompressor
from asyncrec.errors import FormatError

_STEP = 256 << 10
_TOGETHER = 64 << 10

# Members of which records may still be settled: more lie within one record only in files made for it.
_STARTS = 4096


class MemberStream:
    """Reads what an object decompresses to from the member at ``origin`` on.

    Args:
        type: ``"GZIP"`` or ``"ZLIB"``.
        origin: the byte of the object at which the member begins.
        fault: the byte at which decompression failed before; this time, everything before it is returned.
        given_before: how many decompressed bytes were returned before; they are left out.
    """

    def __init__(self, type: str, origin: int, *, fault: int | None = None, given_before: int = 0) -> None:
        self.origin = origin
        self._fault = fault
        self._decompressor = Decompressor(type, fault=None if fault is None else fault - origin)
        self._made = 0
        self._given_before = given_before

    @property
    def member(self) -> int:
        """The byte of the object at which the last member read, or the one at fault, begins."""
        return self.origin + self._decompressor.member_offset

    @property
    def fault(self) -> int:
        """The byte of the object at which an error was met."""
        return self.origin + self._decompressor.consumed

    @property
    def made_of_member(self) -> int:
        """How many decompressed bytes of that member were read."""
        return self._made - self._decompressor.member_start

    def is_known_fault(self, member: int, fault: int) -> bool:
        """Return whether this began with that member to read what is before that fault, or one near it."""
        return member == self.origin and self._fault is not None and fault <= self._fault + _STEP

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the object."""
        self._decompressor.feed(data)

    def finish(self) -> None:
        """Note that the object has ended.

        Raises:
            TruncatedError: it ended inside a member.
        """
        self._decompressor.finish()

    def read(self, wanted: int) -> bytes:
        """Return the next output; near a known fault, where it comes byte by byte, some of it together."""
        decompressor = self._decompressor
        output = decompressor.read(wanted or _STEP)
        if self._fault is None or not output:
            return output
        parts, size = [output], len(output)
        while size < _TOGETHER and not decompressor.between_members:
            try:
                output = decompressor.read(_STEP)
            except FormatError:  # raised again by the next call
                break
            if not output:
                break
            parts.append(output)
            size += len(output)
        return b"".join(parts)

    def without_given(self, output: bytes) -> bytes | None:
        """Count what was read, and return it without what was returned before; `None` if all of it was."""
        self._made += len(output)
        if not self._given_before:
            return output
        again = min(self._given_before, len(output))
        self._given_before -= again
        return output[again:] or None


class MemberStarts:
    """Keeps where members begin: in the object, in the decompressed stream, and between which records.

    Attributes:
        members: (record that begins a member, byte of that member), for those among the records read last, and the one
            before.
        whole_from: the last of them, unless damage was met behind its start.
        passed_on: bytes of the stream so far.
    """

    def __init__(self, start: int, records: int) -> None:
        self.members = [(records, start)]
        self.whole_from: tuple[int, int] | None = None
        self.passed_on = 0
        self._starts = [(0, start)]  # the byte of the stream, and of the object

    def place(self, offset: int) -> tuple[int, int]:
        """Return where the member of a byte of the stream begins: (in the stream, in the object)."""
        return self._starts[max(bisect_right(self._starts, offset, key=lambda each: each[0]) - 1, 0)]

    def is_new(self, byte: int) -> bool:
        """Return whether the member at that byte of the object has not begun here yet."""
        return byte > self._starts[-1][1]

    def begin(self, byte: int) -> None:
        """Note that the stream goes on with the member at that byte of the object."""
        self._starts.append((self.passed_on, byte))
        if len(self._starts) > _STARTS:
            del self._starts[: _STARTS // 2]

    def begin_with_record(self, record: int, byte: int) -> None:
        """Note that reading from the member at that byte on finds the same records again."""
        self.members.append((record, byte))
        self.whole_from = self.members[-1]
