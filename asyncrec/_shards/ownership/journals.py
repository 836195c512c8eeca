"""`Journals` reads the unfinished files of a dead job: their records, and how far their sources had come.

What cannot be read of a journal does not become part of the data set. If it is damaged, a copy is kept.
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
    """The journals of one job that this process has taken. Its methods block."""

    def __init__(self, files: JobFiles, header: JobHeader, ending: Ending) -> None:
        """``ending`` collects what was not whole."""
        self._files = files
        self._header = header
        self._ending = ending

    def reader(self, shard: str, most: int | None = None) -> JournalReader:
        """Make the reader of a journal, or of a whole shard in a spool; it returns ``most`` records at the most."""
        path, keys, other_names, _ = self._files.to_read(shard)
        compressed, key_bytes = bool(self._header.compression.type), self._header.key_bytes
        return JournalReader(path, keys, compressed=compressed, other_names=other_names, key_bytes=key_bytes, most=most)

    def positions(self, shard: str, records: int | None = None) -> tuple[int, Positions] | None:
        """Read how far sources had come in a shard with ``records`` records; by default, in its journal.

        Returns the record behind which it is to be cut, and the positions; `None` if it has none.
        """
        content = self.noted(shard)
        if content is None:
            return None
        return parse_positions(content, self._count(shard) if records is None else records)

    def noted(self, shard: str) -> bytes | None:
        """Read what was noted of a shard's positions; `None` if it has none."""
        return read_positions(self._files.to_read(shard)[3])

    def _count(self, shard: str) -> int:
        """Count the whole records of a journal."""
        reader = self.reader(shard)
        try:
            reader.open()
            while reader.next() is not None:
                pass
            return reader.records
        finally:
            reader.close()

    def report(self, reader: JournalReader) -> None:
        """Record what was not whole, and keep it if it is damage."""
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
