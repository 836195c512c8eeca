"""`ObjectRecords` returns the records of one object in lists, and handles damage.

An intact file is read by a `Pipeline`, whatever ``on_corrupt`` is. To skip damage, a `SalvagePipeline` replaces the
`Pipeline`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from asyncrec._concurrency.tasks import in_thread
from asyncrec._framing.compression import CompressionType, detect_compression
from asyncrec._framing.damage import Damage, DamageLog, DamageReason
from asyncrec._framing.frames import HEADER_BYTES
from asyncrec._framing.salvage.doubt import Found
from asyncrec._framing.salvage.members import recognise
from asyncrec._path_log import PathLog
from asyncrec._records.position import BEGINNING, Position
from asyncrec._records.reading.decode_pipeline import CHUNK_SIZE, FAR_CHUNK_SIZE, Pipeline, ReadOptions
from asyncrec._records.reading.salvage_pipeline import SalvagePipeline
from asyncrec.errors import CorruptRecordError, FormatError, RecordTooLargeError, TruncatedError
from asyncrec.storage._resuming_source import ResumingSource, receive_exactly

_path_log = PathLog("asyncrec.records")

# The number of bytes searched to recognise the compression of a file whose beginning is damaged. A GZIP member that
# asyncrec writes is shorter than this.
_RECOGNISED_BY = 8 << 20

# After this many lost ranges, the stored object itself is most likely damaged, so later ranges are read only once.
_READ_TWICE = 16


class ObjectRecords:
    """One pass over an object, created by `open_object`.

    Attributes:
        path: the path for messages.
        compression: the compression, as detected or passed.
        source: the object's bytes.
        pipeline: the pipeline in use.
        damage: the damage skipped so far.
        rereads: the number of ranges that arrived damaged and were intact when read again.
    """

    def __init__(
        self,
        path: str,
        source: ResumingSource,
        compression: CompressionType,
        options: ReadOptions,
        position: Position,
        *,
        head: bytes,
        remote: bool,
        recognises: bool,
    ) -> None:
        """``head`` contains the bytes that were read from the source to detect the compression.

        If ``remote``, damage may have occurred in transit, so damaged ranges are read again. If ``recognises``, the
        compression was detected from the beginning of the object, and is detected again if the very beginning is
        damaged.
        """
        self.path = path
        self.compression: CompressionType = compression
        self.source = source
        self.damage = DamageLog()
        self.rereads = 0
        if remote and options.chunk_size == CHUNK_SIZE:
            options = replace(options, chunk_size=FAR_CHUNK_SIZE)
        self._options = options
        self._remote = remote
        self._recognises = recognises
        self._found: Found | None = None
        self._reading_again: CorruptRecordError | None = None
        self._ended = False
        self._warned = False
        pipeline = self._pipeline_at(position, frame_bytes=0)
        pipeline.push(head)
        self.pipeline: Pipeline | SalvagePipeline = pipeline

    async def next(self) -> list[bytes]:
        """Return the next complete records. At the end, and on every later call, return an empty list."""
        while not self._ended:
            if isinstance(self.pipeline, SalvagePipeline):
                await self._leave_salvage(self.pipeline)
            try:
                records = await self.pipeline.next_records(self.source)
            except FormatError as error:
                if isinstance(error, CorruptRecordError) and await self._read_again(error):
                    continue
                if self._options.on_corrupt == "skip":
                    self._warn(error)
                    # Break a reference cycle: the pipeline refers to its error, whose traceback refers to the pipeline
                    # and to a large record.
                    error.__traceback__ = error.__cause__ = error.__context__ = None
                    await self._salvage()
                    continue
                self._ended = True
                if self._options.on_corrupt == "raise":
                    raise
                self._note_the_rest(error)
                return []
            if self._reading_again is not None:
                _path_log.warning(self.path, "damaged in transit; a second read was intact: %s", self._reading_again)
                self._reading_again = None
                self.rereads += 1
            self._ended = not records
            return records
        return []

    def _warn(self, error: FormatError) -> None:
        """Log, once, that damage is skipped."""
        if self._warned or not self._options.warns:
            return
        self._warned = True
        no_file = error.record == 0 and isinstance(error, CorruptRecordError) and error.part == "length"
        _path_log.warning(
            self.path,
            "damaged at record %s, offset %s; the damage is skipped, and intact records after it are read%s",
            error.record,
            error.offset,
            "; check that this is a TFRecord file" if no_file else "",
        )

    def _pipeline_at(self, position: Position, *, frame_bytes: int) -> Pipeline:
        return Pipeline(self.path, self.compression, self._options, position, frame_bytes=frame_bytes)

    async def _salvage(self) -> None:
        """Replace the pipeline with a `SalvagePipeline`, which reads the intact records from here on."""
        self._reading_again = None
        pipeline = self.pipeline
        assert isinstance(pipeline, Pipeline), "a SalvagePipeline raises no errors"
        pipeline.give_up()
        position = pipeline.position
        if self._recognises and not pipeline.offset:
            self.compression = await self._recognised()
        self.pipeline = SalvagePipeline(
            self.compression,
            self.damage,
            self.source.seek,
            self._options,
            size=self.source.info.size,
            position=position,
            frame_bytes=pipeline.frame_bytes,
            found=self._found,
        )

    async def _recognised(self) -> CompressionType:
        """Detect the file's compression once more, because its first bytes may be damaged."""
        await self.source.seek(0)
        found = await in_thread(recognise, await receive_exactly(self.source, _RECOGNISED_BY))
        return self.compression if found is None else found

    async def _leave_salvage(self, pipeline: SalvagePipeline) -> None:
        """Return to a `Pipeline` after damage if the store is remote, because later damage may occur in transit."""
        position = pipeline.resumable
        if not self._remote or position is None or self.damage.lost_ranges > _READ_TWICE:
            return
        await self.source.seek(position.offset)
        self._found = pipeline.found
        self.pipeline = self._pipeline_at(position, frame_bytes=pipeline.frame_bytes)

    def _note_the_rest(self, error: FormatError) -> None:
        """Record everything from the error on as lost, or from its member on if the object is compressed."""
        offset = self.pipeline.offset
        if self.compression:
            offset = error.member_offset or 0
        reason: DamageReason = "length"
        if isinstance(error, RecordTooLargeError):
            reason = "too_large"
        elif isinstance(error, TruncatedError):
            reason = "truncated"
        elif isinstance(error, CorruptRecordError) and error.part in ("data", "compression"):
            reason = "data" if error.part == "data" else "compression"
        self.damage.add(Damage(offset, self.source.info.size - offset, reason, self.pipeline.records))

    async def _read_again(self, error: CorruptRecordError) -> bool:
        """Read a damaged range again, but only once, if it came from a remote store. Return whether to continue.

        If the second read is also damaged, add a note to the error, because then the stored object itself is damaged.
        """
        if self._reading_again is None and not await self.source.drop_damaged() and not self._remote:
            return False
        if self._reading_again is not None:
            error.add_note("both of two reads from the store were damaged, so the stored object itself is damaged")
            return False
        pipeline = self.pipeline
        assert isinstance(pipeline, Pipeline), "a SalvagePipeline raises no errors"
        position = pipeline.position
        await self.source.seek(position.offset)
        self._reading_again = error
        self.pipeline = self._pipeline_at(position, frame_bytes=pipeline.frame_bytes)
        return True


async def open_object(
    path: str,
    source: ResumingSource,
    compression: Literal["auto", "", "GZIP", "ZLIB"],
    options: ReadOptions,
    position: Position,
    *,
    remote: bool,
) -> ObjectRecords:
    """Detect the object's compression if it is ``"auto"``, and prepare to read from the position."""
    recognises = compression == "auto" and position == BEGINNING
    head = b""
    if compression == "auto":
        # Enough for a frame's header or the magic number of a compressed file.
        head = await receive_exactly(source, HEADER_BYTES)
        compression = detect_compression(head)
    return ObjectRecords(path, source, compression, options, position, head=head, remote=remote, recognises=recognises)
