"""`MemberSalvager` finds every complete record in a damaged compressed object.

A GZIP member has its own checksum, and can be read independently of the others. After a damaged member, the salvager
therefore searches for the next one, starting one byte after the beginning of the damaged member. It looks for a valid
header followed by a few KiB that can be decompressed. In an intact member, all records are found. In a damaged member,
records are found if they can be decompressed and match their own checksums. ZLIB is a single stream, in which only the
data before the fault can be found.

The salvager does no I/O. `position` is the offset of the byte to be fed next. It moves back if what looked like a
member turns out not to be one, and the bytes from there on must then be read again. A budget limits this to a multiple
of the object's bytes. Once the budget is used up, the salvager no longer goes back.
"""

from __future__ import annotations

import zlib
from dataclasses import replace

from asyncrec._framing.compression import CompressionType
from asyncrec._framing.damage import Damage, DamageLog, DamageReason
from asyncrec._framing.frames import MAX_RECORD_BYTES
from asyncrec._framing.salvage.frames import FrameSalvager, Run
from asyncrec._framing.salvage.member_stream import MemberStarts, MemberStream
from asyncrec.errors import FormatError, TruncatedError

# The budget for going back, as a multiple of the bytes fed, and its minimum. If every member of a file is damaged, all
# its bytes are needed twice.
_AGAIN_FACTOR = 4
_AGAIN_AT_LEAST = 16 << 20
# The minimum cost of going back once, if it takes a request to a store, and the cost if the bytes are still in memory.
_AGAIN_EACH = 8 << 10
_AGAIN_HERE = 1 << 10


class Rewinding:
    """A position in an object, with a budget for going back that grows with the bytes fed.

    Attributes:
        position: the offset of the next byte to be fed.
        at_end: whether the object ends at ``position``.
    """

    def __init__(self, start: int) -> None:
        self.position = start
        self.at_end = False
        self._furthest = start
        self._budget = _AGAIN_AT_LEAST
        self._block = (start, b"")  # the offset of the last block fed, and the block

    def feed(self, data: bytes) -> None:
        """Process the bytes at ``position``. An empty piece means that the object ends there."""
        if data:
            self._block = (self.position, data)
        else:
            self.at_end = True
        self.position += len(data)
        if self.position > self._furthest:
            self._budget += _AGAIN_FACTOR * (self.position - self._furthest)
            self._furthest = self.position

    def may_go_back(self, byte: int) -> bool:
        """Return whether the budget allows going back to ``byte``. If so, deduct the cost from the budget."""
        cost = _AGAIN_HERE if self._block[0] <= byte else max(self.position - byte, _AGAIN_EACH)
        if cost > self._budget:
            return False
        self._budget -= cost
        return True

    def go_back(self, byte: int) -> bytes:
        """Return the bytes starting at ``byte`` if they are in memory, otherwise ``b""``: feed them again."""
        place, block = self._block
        if place <= byte:
            return block[byte - place :]
        self.position = byte
        self.at_end = False
        return b""


_MAGIC = b"\x1f\x8b\x08"
_RESERVED = 0xE0  # flags that must be zero (RFC 1952)

# Random data contains the three magic bytes about once in 16 MiB, but it can rarely be decompressed for this many
# bytes.
_PROBE = 4096
_PROBE_OUTPUT = 1 << 20
# To recognise an object's compression, records of up to this size are sought in this much decompressed data.
_RECOGNISED_RECORD = 16 << 20
_RECOGNISED_OUTPUT = 64 << 20

# zlib's messages for a stream that is complete but does not match its trailer. Such a stream is certainly a member.
_CHECKS = ("incorrect data check", "incorrect length check")


class MemberSalvager:
    """A salvager that accepts a compressed object, returns runs of complete records, and adds damage to ``log``.

    Feed it the bytes from `position` on, in pieces of any size, and ``b""`` at the end of the object. Call `read`
    before feeding each piece. If bytes are needed again, `position` has moved back. This may happen even at the
    object's end.

    Args:
        type: ``"GZIP"`` or ``"ZLIB"``.
        log: the log of the damage. The offsets of compression damage count bytes of the object; the offsets of other
            damage count decompressed bytes of its member.
        start: the offset in the object at which to begin, where a GZIP member begins.
        size: the size of the object, in bytes.
        records: the number of records already returned.
        max_record_bytes, verify: as for `FrameSalvager`.

    Attributes:
        ended: whether all records have been returned.
    """

    def __init__(
        self,
        type: str,
        log: DamageLog,
        *,
        start: int,
        size: int,
        records: int = 0,
        max_record_bytes: int = MAX_RECORD_BYTES,
        verify: bool = True,
    ) -> None:
        self.ended = False
        self._type = type
        self._log = log
        self._size = size
        self._frames = FrameSalvager(self._report, records=records, max_record_bytes=max_record_bytes, verify=verify)
        self._rewinding = Rewinding(start)
        self._starts = MemberStarts(start, records)
        self._stream = MemberStream(type, start)
        self._searching = False
        self._window = bytearray()  # while searching for a member: the last bytes before `position`
        self._reason: DamageReason = "compression"
        self._lost_from = start

    @property
    def position(self) -> int:
        """The offset in the object of the next byte to be fed."""
        return self._rewinding.position

    @property
    def members(self) -> list[tuple[int, int]]:
        """Pairs of (number of the first record of a member, offset of the member in the object).

        They cover the records read last, and one earlier pair comes first. Reading from any of these offsets returns
        the same records again.
        """
        return self._starts.members

    @property
    def wanted(self) -> int:
        """The number of bytes to feed next; 0 if any piece will do."""
        return 0

    @property
    def whole_from(self) -> tuple[int, int] | None:
        """The last of `members`, or `None` if damage was found after it, or damage is still being examined."""
        return self._starts.whole_from if self._frames.settled and not self._searching else None

    def feed(self, data: bytes) -> None:
        """Process the bytes at `position`. ``b""`` means that the object ends there."""
        self._rewinding.feed(data)
        if data:
            self._pass_on(data)

    def read(self, max_bytes: int) -> tuple[list[Run], bool]:
        """Return the records in about ``max_bytes`` of decompressed data, and whether more input is needed."""
        runs: list[Run] = []
        made = 0
        del self.members[:-1]
        while not self.ended and made < max_bytes:
            if self._searching:
                if self._find_member(runs):
                    continue
                return runs, True
            try:
                output = self._stream.read(self._frames.wanted)
                if not output:
                    if not self._rewinding.at_end:
                        return runs, True
                    self._stream.finish()
                    runs += self._frames.finish()
                    self.ended = True
            except FormatError as error:
                self._fail(error, runs)
            else:
                made += len(output)
                self._take(output, runs)
        return runs, False

    def _report(self, damage: Damage) -> None:
        """Log damage that the frame salvager reports, with its offset converted to an offset in the member."""
        begins, byte = self._starts.place(damage.offset)
        self._starts.whole_from = None
        self._log.add(replace(damage, offset=max(damage.offset - begins, 0), member_offset=byte))

    def _take(self, output: bytes, runs: list[Run]) -> None:
        new = self._stream.without_given(output)
        if new is None:
            return
        starts, frames = self._starts, self._frames
        byte = self._stream.member
        if starts.is_new(byte):
            if frames.settled and frames.offset == starts.passed_on:
                starts.begin_with_record(frames.records, byte)
            starts.begin(byte)
        starts.passed_on += len(new)
        runs += frames.feed(new)

    def _fail(self, error: FormatError, runs: list[Run]) -> None:
        """Read the damaged member once more, to get all data before the fault. If it fails again, abandon it."""
        member, fault = self._stream.member, self._stream.fault
        truncated = isinstance(error, TruncatedError)
        # The decompressor keeps its error, whose traceback refers to the decompressor. Break this reference cycle.
        error.__traceback__ = error.__cause__ = error.__context__ = None
        again = not truncated and not self._stream.is_known_fault(member, fault)
        if again and self._rewinding.may_go_back(member):
            made = self._stream.made_of_member
            self._stream = MemberStream(self._type, member, fault=fault, given_before=made)
            self._pass_on(self._rewinding.go_back(member))
            return
        runs += self._frames.interrupt()
        self._starts.whole_from = None
        self._reason = "truncated" if truncated else "compression"
        if self._type == "ZLIB":
            self._lose(fault, self._size)
            self.ended = True
            return
        self._lost_from = member
        self._searching = True
        self._window.clear()
        if self._rewinding.may_go_back(member + 1):
            self._pass_on(self._rewinding.go_back(member + 1))

    def _find_member(self, runs: list[Run]) -> bool:
        """Search the window for the next member, and continue with it. Return `False` if more input is needed."""
        begin = 0
        while (at := self._window.find(_MAGIC, begin)) >= 0:
            probe = bytes(self._window[at : at + _PROBE])
            if len(probe) < _PROBE and not self._rewinding.at_end:
                del self._window[:at]
                return False
            if _is_member(probe):
                byte = self.position - len(self._window) + at
                self._lose(self._lost_from, byte)
                self._lost_from = byte
                rest = bytes(self._window[at:])
                self._window.clear()
                self._searching = False
                self._stream = MemberStream(self._type, byte)
                self._stream.feed(rest)
                self._starts.begin_with_record(self._frames.records, byte)
                return True
            begin = at + 1
        del self._window[: max(len(self._window) - len(_MAGIC) + 1, 0)]
        if not self._rewinding.at_end:
            return False
        self._lose(self._lost_from, self.position)
        runs += self._frames.finish()
        self.ended = True
        return True

    def _pass_on(self, data: bytes) -> None:
        if self._searching:
            self._window += data
        else:
            self._stream.feed(data)

    def _lose(self, begin: int, end: int) -> None:
        """Log lost bytes of the object."""
        self._log.add(Damage(begin, max(end - begin, 0), self._reason, self._frames.records))


def recognise(head: bytes) -> CompressionType | None:
    """Return the compression of an object with a damaged beginning, from the first records found in its ``head``.

    A GZIP member may contain incompressible frames verbatim, and a record may contain GZIP members. The result
    therefore depends on whether a member or a frame is found first; it is `None` if neither is found. ZLIB is not
    recognised without its beginning.
    """
    ignored = DamageLog()
    frames = FrameSalvager(ignored.add, max_record_bytes=_RECOGNISED_RECORD)
    runs = frames.feed(head) or frames.finish()
    plain = runs[0].offset if runs else len(head)
    members = MemberSalvager("GZIP", ignored, start=0, size=len(head), max_record_bytes=_RECOGNISED_RECORD)
    for _ in range(_RECOGNISED_OUTPUT // _PROBE_OUTPUT):
        if members.ended:
            break
        runs, wants_input = members.read(_PROBE_OUTPUT)
        if runs:
            return "GZIP" if members.members[-1][1] < plain else ""
        if wants_input:
            members.feed(head[members.position :])
    return "" if plain < len(head) else None


def _is_member(data: bytes) -> bool:
    """Return whether ``data`` seems to begin with a GZIP member, because decompressing it succeeds."""
    if len(data) < 10 or data[3] & _RESERVED:
        return False
    stream = zlib.decompressobj(16 + zlib.MAX_WBITS)
    try:
        made = len(stream.decompress(data, _PROBE_OUTPUT))
        while stream.unconsumed_tail and not stream.eof and made < _PROBE_OUTPUT:
            made += len(stream.decompress(stream.unconsumed_tail, _PROBE_OUTPUT))
    except zlib.error as error:
        return any(check in str(error) for check in _CHECKS)
    return made > 0 or stream.eof
