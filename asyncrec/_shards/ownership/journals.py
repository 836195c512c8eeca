"""`Journals` reads the records in the unfinished files of a dead job, and the progress of the records' sources.

The unreadable part of a journal does not become part of the data set. If a journal is damaged, a copy is kept.
"""

from __future__ import annotations

from asyncrec._path_log import PathLog
from asyncrec._records.writing.write_batch import Positions
from asyncrec._shards.journal.header import JobHeader
from asyncrec._shards.journal.job_files import JobFiles, keep
from asyncrec._shards.journal.positions_file import parse_positions, read_positions
from asyncrec._shards.journal.reader import JournalReader
from asyncrec._shards.ownership.verdict import Ending

_path_log = PathLog("asyncrec.shards")


class Journals:
    """The journals of one job that this process has locked. Its methods block."""

    def __init__(self, files: JobFiles, header: JobHeader, ending: Ending) -> None:
        """``ending`` collects the sizes of incomplete parts and the paths of damaged journals."""
        self._files = files
        self._header = header
        self._ending = ending

    def reader(self, shard: str, most: int | None = None) -> JournalReader:
        """Return a reader that reads at most ``most`` records of a journal, or of a complete shard in a spool."""
        path, keys, other_names, _ = self._files.to_read(shard)
        compressed, key_bytes = bool(self._header.compression.type), self._header.key_bytes
        return JournalReader(path, keys, compressed=compressed, other_names=other_names, key_bytes=key_bytes, most=most)

    def positions(self, shard: str, records: int | None = None) -> tuple[int, Positions] | None:
        """Read the progress of the sources in a shard with ``records`` records (by default, as many as in its journal).

        Return the number of records to keep, and the positions. Return `None` if the shard has no positions.
        """
        content = self.noted(shard)
        if content is None:
            return None
        return parse_positions(content, self._count(shard) if records is None else records)

    def noted(self, shard: str) -> bytes | None:
        """Read the content of a shard's positions file. Return `None` if the shard has no such file."""
        return read_positions(self._files.to_read(shard)[3])

    def _count(self, shard: str) -> int:
        """Count the complete records of a journal."""
        reader = self.reader(shard)
        try:
            reader.open()
            while reader.next() is not None:
                pass
            return reader.records
        finally:
            reader.close()

    def report(self, reader: JournalReader) -> None:
        """Count the bytes that the reader cut off, and keep a copy of the journal if it is damaged."""
        self._ending.cut_bytes += reader.cut
        if reader.damage is not None:
            kept = keep(reader.path)
            self._ending.damaged.append(kept)
            fields = {"writer": self._header.writer, "record": reader.records}
            _path_log.warning(
                reader.path,
                "the journal is damaged after record %d; a copy is kept as %s",
                reader.records,
                kept,
                **fields,
            )
