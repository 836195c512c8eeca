"""`FrameSalvager` finds every whole record of a damaged stream.

While records follow each other it is a `FrameDecoder`. If a record does not hold, the next one begins

1. where the header says, if another header, or the end, is there. One half of a damaged header may still hold: its
   length, or its checksum, from which the length follows. So a record that contains frames is lost whole, and not
   replaced by them; and a record of which only the header is damaged is returned if the checksum of its data holds. If
   there is an index, it is asked first;
2. else at the next byte at which a whole frame stands (`FrameSearch`).

A record that is found by (2) may be the contents of a record that is lost: then it is returned, and reported as
ambiguous (`asyncrec._framing.salvage.doubt`).

Memory: twice a record of the largest size allowed, and what is fed. Time: linear in what is fed, whatever it is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import NamedTuple

from asyncrec._framing.borders import data_holds, frame_borders
from asyncrec._framing.crc import length_of, masked_crc32c
from asyncrec._framing.damage import Damage, DamageReason
from asyncrec._framing.encoding import FOOTER_BYTES, FRAME_OVERHEAD, HEADER_BYTES
from asyncrec._framing.frames import MAX_RECORD_BYTES, FrameDecoder
from asyncrec._framing.salvage.doubt import Doubt, Found
from asyncrec._framing.search import FrameSearch
from asyncrec._numpy import np
from asyncrec.errors import CorruptRecordError, FormatError, RecordTooLargeError

# After damage the decoder is fed in pieces, small at first: what it cuts behind the next damage is thrown away.
_FIRST_PIECE = 1 << 10
_PIECE = 1 << 20

# A record is believed by half a header up to this size: garbage as a checksum gives a garbage length, and all of that
# would be waited for. Larger records are searched.
_HALF_HEADER_BYTES = 16 << 20


class Run(NamedTuple):
    """Records that follow each other without a gap; the frame of the first begins at byte ``offset`` of the stream."""

    offset: int
    first: int
    records: list[bytes]


class FrameSalvager:
    """Takes a byte stream in any pieces, and returns runs of whole records.

    Args:
        report: called with each damage, in order. Offsets are those of the stream.
        offset: the byte of the stream that is fed first.
        records: how many were returned before.
        max_record_bytes, verify: as for `FrameDecoder`. Records that are found by search are always verified.
        boundaries: where frames begin, ascending, if that is known from an index.
        found: `found` of the salvager that this one continues.

    Attributes:
        records: how many were returned so far, ``records`` among them.
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
        # What was fed, from byte `_base` of the stream on, if it may be needed again. While records follow each other
        # the decoder has it up to `_fed`, and after each `feed` all of it: then the buffer is empty.
        self._buffer = bytearray()
        self._base = self._fed = offset
        self._piece = _PIECE
        self._together = _FIRST_PIECE  # bytes in which frames with bad data are passed at once
        self._decoder: FrameDecoder | None = self._decoder_at(offset)
        self._run_end = -1
        # In damage, that is without a decoder:
        self._began = offset
        self._reason: DamageReason = "length"
        self._ends: list[int] = []  # where it may end, by what index and headers say
        self._claim = 0  # where it ends by a header that holds, but that nothing confirms
        self._searching = False
        self._search: FrameSearch | None = None  # that found the last one by search, and may know the next
        self._doubt = Doubt(report, max_record_bytes, found)

    @property
    def found(self) -> Found | None:
        """The last place found by search, if it may turn out to be ambiguous."""
        return self._doubt.found

    @property
    def offset(self) -> int:
        """The byte of the stream up to which everything is settled: a frame begins there, or damage."""
        return self._began if self._decoder is None else self._decoder.offset

    @property
    def settled(self) -> bool:
        """Whether records follow each other, without damage that is being looked into."""
        return self._decoder is not None

    @property
    def wanted(self) -> int:
        """How many bytes to feed next, as `FrameDecoder.wanted`."""
        return 0 if self._decoder is None else self._decoder.wanted

    def feed(self, data: bytes) -> list[Run]:
        """Take the next bytes of the stream; return the records that are now certain."""
        runs: list[Run] = []
        if self._decoder is not None and (len(data) <= self._piece or self._decoder.wanted):
            self._fed = self._base = self._base + len(data)
            self._decode(self._decoder, data, runs)
        else:
            self._buffer += data
        self._settle(runs, ended=False)
        return runs

    def finish(self) -> list[Run]:
        """Return the records that can still be found at the end of the stream. Called once, and last."""
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
        """Note that an unknown number of bytes is missing: drop the unfinished record, and search for the next one.

        The caller reports the gap. Returns the runs that can still be found before it.
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
        """Find records as far as the buffer allows."""
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
        """Note where and why records no longer follow each other, and where they may do so again."""
        self._began = began = decoder.offset
        self._decoder = None
        self._searching = False
        if began >= self._base:
            self._drop(began)
        else:  # it began in what was fed before the buffer was filled
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
        """Return whether a header, or the end of the stream, stands at ``end``; `None` if that is not there yet."""
        at = end - self._base
        if at + HEADER_BYTES > len(self._buffer):
            return at == len(self._buffer) if ended else None
        header = self._buffer[at : at + HEADER_BYTES]
        return masked_crc32c(header[:8]) == int.from_bytes(header[8:], "little")

    def _go_on_behind(self, ends: list[int], runs: list[Run]) -> None:
        """End damage with the record that it is in; if only the record's header is damaged, the record is returned."""
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
        """Skip the lost frame up to ``end``, and more of its kind; a header or the stream's end follows.

        Frames with bad data may come one behind the other, and a decoder for each would cost a thousand times what
        reading does. So the next ones are looked at together, more of them each time while headers hold.
        """
        data = bytes(self._buffer[: end - self._began + self._together])
        decoder = FrameDecoder(max_record_bytes=self._max_record_bytes, verify=False)
        frames = decoder.feed(data)
        self._together = _FIRST_PIECE if decoder.error is not None else min(2 * self._together, _PIECE)
        _, borders = frame_borders(frames, 0)
        holds = data_holds(data, frames, borders)
        # The last of them, if its data is bad, is one only if a header follows it, too.
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
        """Return where the current frame ends, by the length in its header."""
        return self._began + FRAME_OVERHEAD + int.from_bytes(self._buffer[:8], "little")

    def _record_up_to(self, end: int) -> bytes | None:
        """Return the data of the frame that ends there, if its checksum holds."""
        stop = end - self._base - FOOTER_BYTES
        if stop < HEADER_BYTES:
            return None
        record = bytes(self._buffer[HEADER_BYTES:stop])
        footer = int.from_bytes(self._buffer[stop : stop + FOOTER_BYTES], "little")
        return record if masked_crc32c(record) == footer else None

    def _damaged_to(self, end: int) -> None:
        """Note that damage, by search, ends here, or at the stream's end."""
        self._doubt.damaged(self._began, end, self._reason, self.records, self._claim)

    def _go_on_at(self, place: int) -> None:
        self._drop(place)
        self._fed = place
        self._decoder = self._decoder_at(place)
        self._searching = False
        self._piece = _FIRST_PIECE

    def _drop(self, place: int) -> None:
        """Drop what lies before ``place``."""
        if place > self._base:
            del self._buffer[: place - self._base]
            self._base = place

    def _decoder_at(self, offset: int) -> FrameDecoder:
        decoder = FrameDecoder(max_record_bytes=self._max_record_bytes, verify=self._verify)
        decoder.offset = offset
        return decoder
