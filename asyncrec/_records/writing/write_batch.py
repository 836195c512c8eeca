"""A `WriteBatch` is a group of records that move together from the producers to the store.

Producers add records one by one, without waiting. A full batch is sealed (framed and checksummed) on the producer's
side, while the store is busy with an earlier batch. The size limits of a batch keep this step well under a
millisecond.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, islice
from typing import TYPE_CHECKING, Any, cast

from asyncrec._framing.frames import FRAME_OVERHEAD, encode_frames
from asyncrec._numpy import np
from asyncrec._records.record_size import LARGE_RECORD, buffer_size, fitting, lengths_of, pack_lengths
from asyncrec.errors import ArgumentTypeError
from asyncrec.storage._base import Buffer

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Framing 1,024 records of 128 bytes takes about 0.2 ms; framing 512 KiB of larger records takes less.
BATCH_RECORDS = 1024
BATCH_BYTES = 512 << 10

# The size of one record's entry in a ``.keys`` file: the digest of its key.
KEY_BYTES = 16
# The size of an entry that has the digest of the record's content after the digest of the key.
PAIR_BYTES = 2 * KEY_BYTES

# A batch stores the digest of each record's key. If keys are hashed in bulk when the batch is sealed, it stores the
# keys themselves until then; a bytearray is already a digest.
Key = str | bytes | bytearray
# The turn number and the last position of each source, by the source's name.
Positions = dict[str, tuple[int, int]]
JoinDigests = Callable[[list[Any]], bytes]


def digest_bytes(size: int, records: int) -> int:
    """Return the bytes per record in a keys file of ``size`` bytes: KEY_BYTES, PAIR_BYTES, or 0 if neither fits."""
    return next((width for width in (KEY_BYTES, PAIR_BYTES) if size == width * records), 0)


def digests_in(content: bytes, records: int, *, of_contents: bool = False) -> NDArray[np.uint64]:
    """Return the digests of the keys in a keys file, or those of the contents, as uint64 (records, 2). Blocks.

    The caller has checked the size of the file (`digest_bytes`). If the file has no digests of contents, their array
    has no columns.
    """
    pairs = np.frombuffer(content, "<u8").reshape(records, -1)
    return pairs[:, 2:] if of_contents else pairs[:, :2]


def fitted(digests: bytes, count: int, width: int) -> bytes:
    """Return the digests of ``count`` records with exactly ``width`` bytes for each record.

    Missing digests of contents become zeros, and digests of contents for which there is no space are dropped.
    """
    if len(digests) == width * count:
        return digests
    found = np.zeros((count, width), np.uint8)
    found[:, :KEY_BYTES] = np.frombuffer(digests, np.uint8).reshape(count, -1)[:, :KEY_BYTES]
    return found.tobytes()


class BatchSource:
    """A source of ordered records, such as a partition of a queue.

    Attributes:
        turn: the writer's turn number for this source, or 0 if the writer has no turn.
        position: the last position accepted.
        written: the position as of the last sealed batch that contained records from this source.
    """

    __slots__ = ("name", "position", "turn", "written")

    def __init__(self, name: str, position: int) -> None:
        self.name = name
        self.turn = 0
        self.position = self.written = position


class WriteBatch:
    """Consecutive records on their way into one object.

    Attributes:
        first: the ticket of the first record.
        last: the ticket of the last record.
        time: the time at which the first record was accepted, by the event loop's clock.
        size: the total size of the records' frames, in bytes.
        records: the records; empty once the batch is sealed.
        keys: the key of each record; empty once `seal` has set ``digests``. `None` if no record has a key.
        count: the number of records, set by `seal`.
        frames: the frames of the records, set by `seal`; ``size`` bytes in all.
        lengths: the length of each record, in order, in the format of `pack_lengths`.
        digests: the concatenated digests of the keys, or of keys and contents; `None` if no record has a key.
        positions: the last position of each source in the batch; `None` if no record has a position.
        goes_on: whether the next batch contains more records with this batch's last position. If so, both batches go
            into the same object.
        runs: for each run of records from one source: the index of its first record, the source, and the source's
            turn.
        source: the source of the last record; `None` if it has no source.
    """

    __slots__ = (
        "count",
        "digests",
        "first",
        "frames",
        "goes_on",
        "keys",
        "last",
        "lengths",
        "positions",
        "records",
        "runs",
        "size",
        "source",
        "time",
    )

    def __init__(self, first: int, time: float) -> None:
        self.first = first
        self.last = first
        self.time = time
        self.size = 0
        self.records: list[bytes] = []
        self.keys: list[Key] | None = None
        self.count = 0
        self.frames: Sequence[Buffer] = ()
        self.lengths = b""
        self.digests: bytes | None = None
        self.positions: Positions | None = None
        self.goes_on = False
        self.runs: list[tuple[int, BatchSource | None, int]] = []
        self.source: BatchSource | None = None

    @classmethod
    def of_records(cls, records: list[bytes], size: int, digests: Sequence[bytes] | None = None) -> WriteBatch:
        """Return a sealed batch of records that no caller waits for; ``size`` is the total size of their frames."""
        batch = cls(0, 0.0)
        batch.records = records
        batch.size = size
        batch.seal()
        batch.digests = None if digests is None else b"".join(digests)
        return batch

    @classmethod
    def of_large(
        cls, record: bytes, frames: Sequence[Buffer], *, ticket: int, time: float, digest: bytes | None = None
    ) -> WriteBatch:
        """Return a sealed batch of one record that a worker thread has framed."""
        batch = cls(ticket, time)
        batch.size = len(record) + FRAME_OVERHEAD
        batch.count = 1
        batch.digests = digest
        batch.frames = frames
        batch.lengths = pack_lengths((len(record),))
        return batch

    @classmethod
    def of_frames(cls, frames: Buffer, *, count: int, lengths: bytes, digests: bytes | None) -> WriteBatch:
        """Return a sealed batch of ``count`` records that are already framed."""
        batch = cls(0, 0.0)
        batch.size = len(frames)
        batch.count = count
        batch.frames = (frames,)
        batch.lengths = lengths
        batch.digests = digests
        return batch

    def begin_run(self, source: BatchSource | None) -> None:
        """Begin a run of records from this source, or from no source."""
        self.runs.append((len(self.records), source, 0 if source is None else source.turn))
        self.source = source

    def end_runs(self) -> None:
        """Set ``positions`` to the last position accepted from each source, because the batch is now complete."""
        self.positions = {}
        for _, source, turn in self.runs:
            if source is not None:
                source.written = source.position
                self.positions[source.name] = turn, source.position

    def without_first(self, count: int) -> WriteBatch:
        """Return a copy of this sealed batch without its first ``count`` records, but with the same tickets."""
        return self._of([(count, self.count)])

    def with_turns(self, turn_now: Callable[[str, int], int]) -> WriteBatch | None:
        """Return this sealed batch without records of sources that the writer has lost, or `None` if no record is left.

        ``turn_now`` is called with a source's name and its turn in the batch. It returns the writer's current turn of
        the source, or 0 if the writer has lost the source. The returned batch has the current turns.
        """
        kept: list[tuple[int, int]] = []
        at = 0
        for begin, end, source, turn in self._spans():
            if source is not None and not turn_now(source.name, turn):
                kept.append((at, begin))
                at = end
        kept = [(begin, end) for begin, end in (*kept, (at, self.count)) if begin < end]
        if not kept:
            return None
        batch = self if kept == [(0, self.count)] else self._of(kept)
        if self.positions is not None:
            batch.positions = {
                source: (now, position)
                for source, (turn, position) in self.positions.items()
                if (now := turn_now(source, turn))
            } or None
        batch.runs = [
            (begin, source, 0 if source is None else turn_now(source.name, turn)) for begin, source, turn in batch.runs
        ]
        return batch

    def _of(self, kept: Sequence[tuple[int, int]]) -> WriteBatch:
        """Return a sealed batch of the records in the ``kept`` ranges, with the same tickets."""
        lengths = array("q")
        lengths.frombytes(self.lengths)
        starts = [0, *accumulate(length + FRAME_OVERHEAD for length in lengths)]
        frames = b"".join(self.frames)
        width = len(self.digests or b"") // self.count
        batch = WriteBatch.of_frames(
            b"".join(frames[starts[begin] : starts[end]] for begin, end in kept),
            count=sum(end - begin for begin, end in kept),
            lengths=pack_lengths([length for begin, end in kept for length in lengths[begin:end]]),
            digests=None
            if self.digests is None
            else b"".join(self.digests[width * begin : width * end] for begin, end in kept),
        )
        batch.first, batch.last, batch.time = self.first, self.last, self.time
        batch.positions, batch.goes_on = self.positions, self.goes_on
        before = 0
        for begin, end in kept:
            for first, last, source, turn in self._spans():
                if first < end and last > begin:
                    batch.runs.append((before + max(0, first - begin), source, turn))
            before += end - begin
        return batch

    def _spans(self) -> list[tuple[int, int, BatchSource | None, int]]:
        """Return each run's first record, end, source and turn."""
        ends = [*(begin for begin, _, _ in self.runs[1:]), self.count]
        return [(begin, end, source, turn) for (begin, source, turn), end in zip(self.runs, ends, strict=False)]

    def seal(self, join_digests: JoinDigests = b"".join) -> None:
        """Frame at most BATCH_RECORDS records, of at most BATCH_BYTES plus one record of LARGE_RECORD bytes."""
        self.count = len(self.records)
        self.lengths = lengths_of(self.records)
        self.frames = encode_frames(self.records)
        self.records = []
        if self.runs:
            self.end_runs()
        if self.keys is not None:
            self.digests = join_digests(self.keys)
            self.keys = []


def check_list(records: Iterable[Any]) -> None:
    """Raise an error if the argument of ``write_many`` is a single record.

    Raises:
        TypeError: the argument is a buffer or text.
    """
    if isinstance(records, (bytes, bytearray, memoryview, str)):
        raise ArgumentTypeError(
            f"write_many needs a list of records, not a single {type(records).__name__}; use write, or pass a list"
        )


def batched(
    records: Iterable[Buffer | Mapping[str, Any]], *, times: int = 1, longest: int = LARGE_RECORD
) -> Iterator[tuple[list[bytes], int] | Buffer]:
    """Yield the records in lists that fit into a `WriteBatch`, each with the total size of its frames.

    A record longer than ``longest`` (at most LARGE_RECORD) is yielded alone, unchanged. A list may be as large as
    ``times`` batches, for a caller that spreads it over several batches.

    Raises:
        TypeError: a record is not a buffer (earlier records are yielded first), or ``records`` is itself a buffer.
    """
    check_list(records)
    source = iter(records)
    while batch := list(islice(source, BATCH_RECORDS)):
        begin = 0
        while begin < len(batch):
            end, size = fitting(batch, begin, times * BATCH_BYTES, longest)
            if end == begin:  # the next record is large, or not exactly `bytes`
                yield from _cut_any(cast("list[Buffer]", batch[begin:]), longest)
                break
            yield cast("list[bytes]", batch[begin:end]), size
            begin = end


def framed(records: list[bytes], keys: Sequence[bytes] | None) -> list[WriteBatch]:
    """Return the records, with the digests of their keys, in sealed batches of bounded size. Blocks."""
    batches = []
    at = 0
    for item in batched(records):
        count = len(item[0]) if isinstance(item, tuple) else 1
        some_keys = None if keys is None else keys[at : at + count]
        if isinstance(item, tuple):
            batches.append(WriteBatch.of_records(*item, some_keys))
        else:
            key = None if some_keys is None else some_keys[0]
            record = bytes(item)
            batches.append(WriteBatch.of_large(record, encode_frames([record]), ticket=0, time=0.0, digest=key))
        at += count
    return batches


def _cut_any(batch: list[Buffer], longest: int) -> Iterator[tuple[list[bytes], int] | Buffer]:
    """Yield lists like `batched`, but convert the records, which may have any type, one by one."""
    part: list[bytes] = []
    size = 0
    for record in batch:
        try:
            length = buffer_size(record)
        except TypeError:
            if part:
                yield part, size
            raise
        if part and (size + length > BATCH_BYTES or length > longest):
            yield part, size
            part, size = [], 0
        if length > longest:
            yield record
            continue
        part.append(record if type(record) is bytes else bytes(record))
        size += length + FRAME_OVERHEAD
    if part:
        yield part, size
