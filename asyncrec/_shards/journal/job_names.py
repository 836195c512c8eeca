"""`JobNames`: the names of one job's shards. They are final once it is known whether the job owns the plain names.

A name contains the id of the job that makes the shard, so two jobs never use the same name. The exception is fixed
shards: they have plain names, without an id, if the job's claim shows that no other job uses them
(`_shards.ownership.claims`). When a job rewrites a shard, the name of the new shard ends with the job's id.
"""

from __future__ import annotations

from dataclasses import dataclass

from asyncrec._shards.journal.header import JobHeader
from asyncrec._shards.manifest.names import fixed_shard_name, maker_of, rewriter_of, rolling_shard_name, stem_of


@dataclass(frozen=True, slots=True)
class JobNames:
    """The names of a job's shards.

    Attributes:
        name: the name of the data set.
        writer: the id that the names contain.
        num_shards: the number of fixed shards; `None` if the job is rolling.
        stems: if the job is a copy, the maker ids in the shard names that it takes over from its source.
        plain: whether the job owns the names without a maker's id.
        rewrites: whether the job rewrites shards. If so, each new name begins with the name of the old shard.
    """

    name: str
    writer: str
    num_shards: int | None
    stems: tuple[str, ...] = ()
    plain: bool = False
    rewrites: bool = False

    @classmethod
    def of(cls, header: JobHeader, *, plain: bool = False) -> JobNames:
        """Return the names of the job that the header describes."""
        return cls(header.name, header.writer, header.num_shards, header.stems, plain, header.rewrites)

    def shard(self, number: int) -> str:
        """Return the name of the shard with this number."""
        if self.num_shards is None:
            return rolling_shard_name(self.name, self.writer, number)
        return fixed_shard_name(self.name, number, self.num_shards, "" if self.plain else self.writer)

    def fixed(self) -> list[str]:
        """Return the names of all fixed shards, in order."""
        return [self.shard(number) for number in range(self.num_shards or 0)]

    def makes(self, shard: str) -> bool:
        """Return whether the job makes a shard with this name.

        Only exact names count, because a similar name may belong to a data set whose name begins with this one's. A
        shard to which a copy gives the same name as in its source does not count: it is kept for the next copy.
        """
        found = maker_of(self.name, shard)
        if found is None:
            return False
        maker, rolling = found
        if rewriter_of(shard) is not None:
            return maker == self.writer
        if rolling:
            return self.num_shards is None and (maker or "").partition(".")[0] == self.writer
        own = maker == self.writer or (maker is None and self.plain)
        return own and self.num_shards is not None and shard.endswith(f"-of-{self.num_shards:05d}.tfrecord")

    def begins(self, shard: str) -> bool:
        """Return whether the job may have an unfinished file for a shard with this name."""
        return self.makes(shard) or stem_of(self.name, shard) in self.stems
