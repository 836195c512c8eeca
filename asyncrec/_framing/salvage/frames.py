"""`FrameSalvager` finds every complete record in a damaged stream.

As long as the records are intact, it works like a `FrameDecoder`. If a record is damaged, the next one begins

1. at the end that the damaged record's header states, if another header or the end of the stream is found there. Half
   of a damaged header may still be intact: its length, or its checksum, from which the length can be derived. Thus, if
   a damaged record contains frames, these are not mistaken for records. If only a record's header is damaged, the
   record is returned if its data matches its checksum. If there is an index, the position in the index is tried first;
2. otherwise, at the next byte at which a complete frame begins (`FrameSearch`).

A record found by (2) may be part of the contents of a lost record. It is returned, but is reported as ambiguous if that
cannot be ruled out (`asyncrec._framing.salvage.doubt`).

Memory is limited to two records of the maximum length and the piece being fed. Time is linear in the bytes fed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import NamedTuple

from asyncrec._framing.crc import length_of, masked_crc32c
from asyncrec._framing.damage import Damage, DamageReason
from asyncrec._framing.encoding import FOOTER_BYTES, FRAME_OVERHEAD, HEADER_BYTES, data_holds, frame_borders
from asyncrec._framing.frames import MAX_RECORD_BYTES, FrameDecoder
from asyncrec._framing.salvage.doubt import Doubt, Found
from asyncrec._framing.search import FrameSearch
from asyncrec._numpy import np
from asyncrec.errors import CorruptRecordError, FormatError, RecordTooLargeError

# After damage, the decoder is fed small pieces at first, because whatever a piece contains after the next damage has to
# be decoded again.
_FIRST_PIECE = 1 << 10
_PIECE = 1 << 20

# If only half of a header is intact, it is trusted only for a record of at most this size. A damaged checksum yields a
# random length, and that many bytes would have to be fed to check it. The record after a larger one is found by search.
_HALF_HEADER_BYTES = 16 << 20


class Run(NamedTuple):
    """Adjacent records. The frame of the first record begins at byte ``offset`` of the stream."""

    offset: int
    first: int
    records: list[bytes]


class FrameSalvager:
    """A salvager that accepts a byte stream in pieces of any size, and returns runs of complete records.

    Args:
        report: called with each damaged range, in order. Its offsets count bytes of the stream.
        offset: the offset in the stream of the first byte fed.
        records: the number of records already returned.
        max_record_bytes, verify: as for `FrameDecoder`. Records found by search are always verified.
        boundaries: the positions at which frames begin, in ascending order, if an index lists them.
        found: the `found` attribute of the salvager that this one replaces.

    Attributes:
        records: the number of records returned so far, including ``records``.
    """

    def __init__(
        self,
        report: Callable[[Damage], None],
        *,
        offset: int = 0,
        records: int = 0,
        max_record_bytes: int = MAX_RECORD_BYTES,
        verify: bool = True,
        boundaries: Sequence[int] = (),
        found: Found | None = None,
    ) -> None:
        self.records = records
        self._report = report
        self._max_record_bytes = max_record_bytes
        self._verify = verify
        self._boundaries = boundaries
        # The bytes that may be needed again, from byte `_base` of the stream on. While there is a decoder, it has
        # received the bytes up to `_fed`. At the end of each `feed`, it has received all of them, and the buffer is
        # empty.
        self._buffer = bytearray()
        self._base = self._fed = offset
        self._piece = _PIECE
        self._together = _FIRST_PIECE  # the number of bytes to check at once when skipping frames with bad data
        self._decoder: FrameDecoder | None = self._decoder_at(offset)
        self._run_end = -1
        # Used while a damaged range is being examined and there is no decoder:
        self._began = offset
        self._reason: DamageReason = "length"
        self._ends: list[int] = []  # possible ends of the damage, from the index and the headers
        self._claim = 0  # the unconfirmed end of the damage according to an intact header, or 0
        self._searching = False
        self._search: FrameSearch | None = None  # the search that found the last frame; it can be continued
        self._doubt = Doubt(report, max_record_bytes, found)

    @property
    def found(self) -> Found | None:
        """The last place found by search, if it may still turn out to be ambiguous."""
        return self._doubt.found

    @property
    def offset(self) -> int:
        """The offset up to which all records and all damage are known. A frame or a damaged range begins there."""
        return self._began if self._decoder is None else self._decoder.offset

    @property
    def settled(self) -> bool:
        """Whether no damaged range is being examined."""
        return self._decoder is not None

    @property
    def wanted(self) -> int:
        """The number of bytes to feed next, as in `FrameDecoder.wanted`."""
        return 0 if self._decoder is None else self._decoder.wanted

    def feed(self, data: bytes) -> list[Run]:
        """Process the next bytes of the stream. Return the records that have been found so far."""
        runs: list[Run] = []
        if self._decoder is not None and (len(data) <= self._piece or self._decoder.wanted):
            self._fed = self._base = self._base + len(data)
            self._decode(self._decoder, data, runs)
        else:
            self._buffer += data
        self._settle(runs, ended=False)
        return runs

    def finish(self) -> list[Run]:
        """Return the records that can still be found at the end of the stream. Must be called once, at the end."""
        runs: list[Run] = []
        self._settle(runs, ended=True)
        while self._decoder is not None:
            try:
                self._decoder.finish()
                self._doubt.whole_up_to(self._decoder.offset)
                return runs
            except FormatError as error:
                self._break_off(self._decoder, error)
            self._settle(runs, ended=True)
        self._damaged_to(self._base + len(self._buffer))
        return runs

    def interrupt(self) -> list[Run]:
        """Discard the unfinished record, because an unknown number of bytes is missing, and search for the next one.

        Return the records that can still be found before the gap. The caller reports the gap as damage.
        """
        end = self._base + len(self._buffer)
        runs: list[Run] = []
        if self._decoder is None:
            self._settle(runs, ended=True)
            if self._decoder is None and self._reason != "compression":
                self._damaged_to(end)
        if self._decoder is not None:
            self._doubt.whole_up_to(self._decoder.offset)
        self._buffer.clear()
        self._base = self._fed = self._began = end
        self._decoder = self._doubt.found = None
        self._reason = "compression"
        self._ends = []
        self._search = FrameSearch(self._buffer, base=end, start=end, max_record_bytes=self._max_record_bytes)
        self._searching = True
        return runs

    def _settle(self, runs: list[Run], *, ended: bool) -> None:
        """Find all records that can be found with the bytes in the buffer."""
        while True:
            if self._decoder is not None:
                if self._fed == self._base + len(self._buffer):
                    self._buffer.clear()
                    self._base = self._fed
                    return
                begin = self._fed - self._base
                piece = bytes(self._buffer[begin : begin + self._piece])
                self._fed += len(piece)
                self._decode(self._decoder, piece, runs)
                if self._decoder is not None:
                    self._drop(self._decoder.offset)
            elif self._ends:
                follows = [self._frame_follows(end, ended) for end in self._ends]
                if None in follows:
                    return
                ends = [end for end, does in zip(self._ends, follows, strict=True) if does]
                self._ends = []
                if ends:
                    self._go_on_behind(ends, runs)
            else:
                if self._search is None:
                    self._search = FrameSearch(
                        self._buffer, base=self._base, start=self._began + 1, max_record_bytes=self._max_record_bytes
                    )
                elif not self._searching:
                    self._search.go_on(self._buffer, base=self._base, start=self._began + 1)
                self._searching = True
                place = self._search.find(ended=ended)
                self._base = self._search.base
                if place is None:
                    return
                self._damaged_to(place)
                self._go_on_at(place)

    def _decode(self, decoder: FrameDecoder, data: bytes, runs: list[Run]) -> None:
        self._piece = min(2 * self._piece, _PIECE)
        offset = decoder.offset
        if records := decoder.feed(data):
            self._give(offset, records, decoder.offset, runs)
        if decoder.error is not None:
            self._break_off(decoder, decoder.error)

    def _give(self, offset: int, records: list[bytes], end: int, runs: list[Run]) -> None:
        if runs and self._run_end == offset:
            runs[-1].records.extend(records)
        else:
            runs.append(Run(offset, self.records, records))
        self.records += len(records)
        self._run_end = end

    def _break_off(self, decoder: FrameDecoder, error: FormatError) -> None:
        """Record where the decoder found damage, its reason, and the positions at which the next record may begin."""
        self._began = began = decoder.offset
        self._decoder = None
        self._searching = False
        if began >= self._base:
            self._drop(began)
        else:  # the frame began in bytes fed before the buffer was filled
            rest = self._buffer[self._fed - self._base :]
            self._buffer = bytearray()
            for part in decoder.take_remains():
                self._buffer += part
            self._buffer += rest
            self._base = began
        if isinstance(error, CorruptRecordError):
            self._reason = "data" if error.part == "data" else "length"
        else:
            self._reason = "too_large" if isinstance(error, RecordTooLargeError) else "truncated"
        self._claim = 0
        if self._reason in ("too_large", "truncated") and len(self._buffer) >= HEADER_BYTES:
            self._claim = self._end_by_header()
        self._ends = [end for end in self._possible_ends() if end - began <= self._max_record_bytes + FRAME_OVERHEAD]

    def _possible_ends(self) -> list[int]:
        ends = []
        which = bisect_right(self._boundaries, self._began)
        if which < len(self._boundaries):
            ends.append(int(self._boundaries[which]))
        first_half, second_half = (
            int.from_bytes(self._buffer[:8], "little"),
            int.from_bytes(self._buffer[8:HEADER_BYTES], "little"),
        )
        if self._reason == "data":
            ends.append(self._end_by_header())
        elif self._reason == "length":
            lengths = sorted({first_half, length_of(second_half)})
            ends += [self._began + length + FRAME_OVERHEAD for length in lengths if length <= _HALF_HEADER_BYTES]
        return ends

    def _frame_follows(self, end: int, ended: bool) -> bool | None:
        """Return whether a header or the stream's end is at ``end``; `None` if those bytes have not yet been fed."""
        at = end - self._base
        if at + HEADER_BYTES > len(self._buffer):
            return at == len(self._buffer) if ended else None
        header = self._buffer[at : at + HEADER_BYTES]
        return masked_crc32c(header[:8]) == int.from_bytes(header[8:], "little")

    def _go_on_behind(self, ends: list[int], runs: list[Run]) -> None:
        """Continue after the damaged record, at one of ``ends``. If only its header is damaged, add it to ``runs``."""
        for end in ends:
            record = self._record_up_to(end) if self._reason == "length" else None
            if record is not None:
                self._report(Damage(self._began, HEADER_BYTES, "length", self.records))
                self._give(self._began, [record], end, runs)
                self._go_on_at(end)
                return
        if self._reason == "data" and ends[0] == self._end_by_header():
            self._pass_bad_data(ends[0], runs)
            return
        self._report(Damage(self._began, ends[0] - self._began, self._reason, self.records))
        self._go_on_at(ends[0])

    def _pass_bad_data(self, end: int, runs: list[Run]) -> None:
        """Skip the damaged frame, which ends at ``end``, and any frames after it that have bad data too.

        At ``end``, there is another header or the end of the stream. Many frames with bad data may be adjacent, and
        creating a decoder for each would take a thousand times as long as reading them. The next frames are therefore
        checked together, in pieces that grow as long as the headers are intact.
        """
        data = bytes(self._buffer[: end - self._began + self._together])
        decoder = FrameDecoder(max_record_bytes=self._max_record_bytes, verify=False)
        frames = decoder.feed(data)
        self._together = _FIRST_PIECE if decoder.error is not None else min(2 * self._together, _PIECE)
        _, borders = frame_borders(frames, 0)
        holds = data_holds(data, frames, borders)
        # If the data of the last frame is bad, it counts as a frame only if another header follows it.
        count = len(frames)
        if count > 1 and not holds[-1] and not self._frame_follows(self._began + int(borders[-1]), ended=False):
            count -= 1
        changes = [*(np.flatnonzero(holds[1:count] != holds[: count - 1]) + 1).tolist(), count]
        first = 0
        for last in changes:
            begin, stop = self._began + int(borders[first]), self._began + int(borders[last])
            if holds[first]:
                self._give(begin, frames[first:last], stop, runs)
            else:
                self._report(Damage(begin, stop - begin, "data", self.records))
            first = last
        self._go_on_at(self._began + int(borders[count]))

    def _end_by_header(self) -> int:
        """Return the end of the current frame according to the length in its header."""
        return self._began + FRAME_OVERHEAD + int.from_bytes(self._buffer[:8], "little")

    def _record_up_to(self, end: int) -> bytes | None:
        """Return the data of the frame that ends at ``end``, or `None` if it does not match its checksum."""
        stop = end - self._base - FOOTER_BYTES
        if stop < HEADER_BYTES:
            return None
        record = bytes(self._buffer[HEADER_BYTES:stop])
        footer = int.from_bytes(self._buffer[stop : stop + FOOTER_BYTES], "little")
        return record if masked_crc32c(record) == footer else None

    def _damaged_to(self, end: int) -> None:
        """Record that the damage ends at ``end``, because a search found a frame there, or the stream ends there."""
        self._doubt.damaged(self._began, end, self._reason, self.records, self._claim)

    def _go_on_at(self, place: int) -> None:
        self._drop(place)
        self._fed = place
        self._decoder = self._decoder_at(place)
        self._searching = False
        self._piece = _FIRST_PIECE

    def _drop(self, place: int) -> None:
        """Discard the bytes before ``place``."""
        if place > self._base:
            del self._buffer[: place - self._base]
            self._base = place

    def _decoder_at(self, offset: int) -> FrameDecoder:
        decoder = FrameDecoder(max_record_bytes=self._max_record_bytes, verify=self._verify)
        decoder.offset = offset
        return decoder
