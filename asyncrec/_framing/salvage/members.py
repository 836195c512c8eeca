"""Every whole record of a damaged compressed object: `MemberSalvager`.

A GZIP member is checked as a whole, and may be read alone. So behind a damaged one the next is looked for, from the
byte after its beginning on: a header that makes sense, behind which some KiB decompress. Records of every member that
is whole are found, and those of a damaged one as far as it decompresses, by their own checksums. Of ZLIB, one stream,
what is before the fault is all there is.

Sans I/O: it says from which `position` it is to be fed, and goes back there when a member that looked right was none.
That costs reading bytes again, and has a budget, in proportion to the bytes read: from members that lie about each
other for long enough it does not go back.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from dataclasses import replace

from asyncrec._framing.compression import CompressionType, Decompressor
from asyncrec._framing.damage import Damage, DamageLog, DamageReason
from asyncrec._framing.frames import MAX_RECORD_BYTES
from asyncrec._framing.salvage.frames import FrameSalvager, Run
from asyncrec.errors import FormatError, TruncatedError

__all__ = ["MemberSalvager", "recognise"]

_MAGIC = b"\x1f\x8b\x08"
_RESERVED = 0xE0  # flags that no member has (RFC 1952)

# Three bytes of magic stand in random data every 16 MiB; of what follows such an accident, few go so far.
_PROBE = 4096
_PROBE_OUTPUT = 1 << 20
# How an object is compressed is told by records up to this size, from so much of what it decompresses to.
_RECOGNISED_RECORD = 16 << 20
_RECOGNISED_OUTPUT = 64 << 20

# Going back: twice over all bytes is what a file takes in which every member is damaged.
_AGAIN_FACTOR = 4
_AGAIN_AT_LEAST = 16 << 20
# What is charged at least: for a request to a store, and for what is in memory still.
_AGAIN_EACH = 8 << 10
_AGAIN_HERE = 1 << 10

# zlib's words where a stream ended well, and its trailer does not hold: damaged, and a member for certain.
_CHECKS = ("incorrect data check", "incorrect length check")

_STEP = 256 << 10
_TOGETHER = 64 << 10

# Members of which records may still be settled: more lie within one record only in files made for it.
_STARTS = 4096


class MemberSalvager:
    """The bytes of a compressed object in, runs of whole records out; the damage into ``log``.

    Feed it from `position` on, in any pieces, then ``b""`` at the object's end; `read` before each. It may want bytes
    again: then `position` is not where the last piece ended, not even at the object's end.

    Args:
        type: ``"GZIP"`` or ``"ZLIB"``.
        log: compression damage in bytes of the object, other damage within the member it is in.
        start: the byte of the object at which to begin: of a GZIP member.
        size: of the object, in bytes.
        records: how many were given out before.
        max_record_bytes, verify: as for `FrameSalvager`.

    Attributes:
        position: the byte of the object to be fed next.
        ended: nothing more will come.
        members: (record that begins a member, byte of that member), for those among the records read last, and the
            one before. From each of these bytes on the same records are found again.
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
        self.position = start
        self.ended = False
        self.members = [(records, start)]
        self._type = type
        self._log = log
        self._size = size
        self._frames = FrameSalvager(self._report, records=records, max_record_bytes=max_record_bytes, verify=verify)
        self._stream = 0  # bytes given to it
        self._starts = [(0, start)]  # of members: the byte of the stream, and of the object
        self._furthest = start
        self._budget = _AGAIN_AT_LEAST
        self._at_end = False
        self._block = (start, b"")  # fed last, and its place
        self._searching = False
        self._reason: DamageReason = "compression"
        self._lost_from = start
        self._window = bytearray()  # in a search: the bytes before `position`
        self._whole_from: tuple[int, int] | None = None  # the last of `members`, unless damage was met behind its start
        self._begin(start)

    @property
    def wanted(self) -> int:
        """How many bytes to feed next; 0 when any piece will do."""
        return 0

    @property
    def whole_from(self) -> tuple[int, int] | None:
        """The last of `members`, once the damage met so far is behind it, and nothing that is before it is pending."""
        return self._whole_from if self._frames.settled and not self._searching else None

    def feed(self, data: bytes) -> None:
        """The bytes at `position`; ``b""`` says that the object ends there."""
        if data:
            self._block = (self.position, data)
            self._pass_on(data)
        else:
            self._at_end = True
        self.position += len(data)
        if self.position > self._furthest:
            self._budget += _AGAIN_FACTOR * (self.position - self._furthest)
            self._furthest = self.position

    def read(self, max_bytes: int) -> tuple[list[Run], bool]:
        """Runs from about ``max_bytes`` of decompressed data, and whether it takes more input to go on."""
        runs: list[Run] = []
        made = 0
        del self.members[:-1]
        while not self.ended and made < max_bytes:
            if self._searching:
                if self._find_member(runs):
                    continue
                return runs, True
            try:
                output = self._output()
                if not output:
                    if not self._at_end:
                        return runs, True
                    self._decompressor.finish()
                    runs += self._frames.finish()
                    self.ended = True
            except FormatError as error:
                self._fail(error, runs)
            else:
                made += len(output)
                self._take(output, runs)
        return runs, False

    def _report(self, damage: Damage) -> None:
        """What the stream of frames reports, placed in its member."""
        begins, byte = self._starts[max(bisect_right(self._starts, damage.offset, key=lambda each: each[0]) - 1, 0)]
        self._whole_from = None
        self._log.add(replace(damage, offset=max(damage.offset - begins, 0), member_offset=byte))

    def _output(self) -> bytes:
        """What comes out next. Near a known fault that is byte by byte: some of it together, of one member."""
        output = self._decompressor.read(self._frames.wanted or _STEP)
        if self._fault is None or not output:
            return output
        parts, size = [output], len(output)
        while size < _TOGETHER and not self._decompressor.between_members:
            try:
                output = self._decompressor.read(_STEP)
            except FormatError:  # raised again by the next call
                break
            if not output:
                break
            parts.append(output)
            size += len(output)
        return b"".join(parts)

    def _take(self, output: bytes, runs: list[Run]) -> None:
        self._made += len(output)
        if self._given_before:
            again = min(self._given_before, len(output))
            self._given_before -= again
            output = output[again:]
            if not output:
                return
        byte = self._origin + self._decompressor.member_offset
        if byte > self._starts[-1][1]:
            if self._frames.settled and self._frames.offset == self._stream:
                self.members.append((self._frames.records, byte))
                self._whole_from = self.members[-1]
            self._starts.append((self._stream, byte))
            if len(self._starts) > _STARTS:
                del self._starts[: _STARTS // 2]
        self._stream += len(output)
        runs += self._frames.feed(output)

    def _fail(self, error: FormatError, runs: list[Run]) -> None:
        """The member at fault is read once more, for what is before the fault; then it is left."""
        member = self._origin + self._decompressor.member_offset
        fault = self._origin + self._decompressor.consumed
        truncated = isinstance(error, TruncatedError)
        # The decompressor keeps its error, whose frames keep the decompressor: it would stay until a collection.
        error.__traceback__ = error.__cause__ = error.__context__ = None
        again = not truncated and not (
            member == self._origin and self._fault is not None and fault <= self._fault + _STEP
        )
        if again and self._may_go_back(member):
            made = self._made - self._decompressor.member_start
            self._begin(member, fault=fault, given_before=made)
            self._go_back(member)
            return
        runs += self._frames.interrupt()
        self._whole_from = None
        self._reason = "truncated" if truncated else "compression"
        if self._type == "ZLIB":
            self._lose(fault, self._size)
            self.ended = True
            return
        self._lost_from = member
        self._searching = True
        self._window.clear()
        if self._may_go_back(member + 1):
            self._go_back(member + 1)

    def _find_member(self, runs: list[Run]) -> bool:
        """Go on with the next member in the window; `False` when that takes more input."""
        begin = 0
        while (at := self._window.find(_MAGIC, begin)) >= 0:
            probe = bytes(self._window[at : at + _PROBE])
            if len(probe) < _PROBE and not self._at_end:
                del self._window[:at]
                return False
            if _is_member(probe):
                byte = self.position - len(self._window) + at
                self._lose(self._lost_from, byte)
                self._lost_from = byte
                rest = bytes(self._window[at:])
                self._window.clear()
                self._searching = False
                self._begin(byte)
                self._decompressor.feed(rest)
                self.members.append((self._frames.records, byte))
                self._whole_from = self.members[-1]
                return True
            begin = at + 1
        del self._window[: max(len(self._window) - len(_MAGIC) + 1, 0)]
        if not self._at_end:
            return False
        self._lose(self._lost_from, self.position)
        runs += self._frames.finish()
        self.ended = True
        return True

    def _pass_on(self, data: bytes) -> None:
        if self._searching:
            self._window += data
        else:
            self._decompressor.feed(data)

    def _begin(self, byte: int, *, fault: int | None = None, given_before: int = 0) -> None:
        """Begin again with the member at ``byte``, of which so many decompressed bytes went on already."""
        self._origin = byte
        self._fault = fault
        self._decompressor = Decompressor(self._type, fault=None if fault is None else fault - byte)
        self._made = 0  # by this decompressor
        self._given_before = given_before

    def _go_back(self, byte: int) -> None:
        """Have the bytes from there on again: from memory, or by asking for them."""
        place, block = self._block
        if place <= byte:
            self._pass_on(block[byte - place :])
        else:
            self.position = byte
            self._at_end = False

    def _may_go_back(self, byte: int) -> bool:
        cost = _AGAIN_HERE if self._block[0] <= byte else max(self.position - byte, _AGAIN_EACH)
        if cost > self._budget:
            return False
        self._budget -= cost
        return True

    def _lose(self, begin: int, end: int) -> None:
        self._log.add(Damage(begin, max(end - begin, 0), self._reason, self._frames.records))


def recognise(head: bytes) -> CompressionType | None:
    """How an object is compressed whose very beginning is damaged, from the first records found in ``head`` of it.

    Frames may stand in a GZIP member as they are, where they did not get smaller, and members in a record: so the
    member or the frame is believed that comes first. `None` where there is neither. ZLIB cannot be told once its
    beginning is gone.
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
    """Whether a GZIP member seems to begin here: whether its first bytes, or all there are, decompress to something."""
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
