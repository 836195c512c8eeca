"""The contents of the store: names, and the objects stored under them. All are immutable and compared by value.

A name states which log an object belongs to; a token states which attempt of which process made it. As in a real store,
two objects with the same bytes are equal.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

Records: TypeAlias = tuple[str, ...]
Numbers: TypeAlias = tuple[tuple[int, int], ...]
Positions: TypeAlias = tuple[tuple[str, int], ...]


class Name(NamedTuple):
    """``kind`` is one of entry, flush, list, turn, source, checkpoint, columns, latest, shard, sidecar."""

    kind: str
    log: str = ""
    number: int = 0
    token: str = ""

    def __str__(self) -> str:
        owner = f" {self.log}" if self.log else ""
        return f"{self.kind}{owner}{f'~{self.token}' if self.token else ''}-{self.number}"


class Add(NamedTuple):
    """A shard that an entry adds. ``origin`` has, for each record, the log and number that first committed it."""

    shard: Name
    records: Records
    origin: tuple[tuple[str, int], ...] = ()
    sidecar: Name | None = None

    def objects(self) -> tuple[Name, ...]:
        return (self.shard,) if self.sidecar is None else (self.shard, self.sidecar)

    def origins(self, log: str, number: int) -> tuple[tuple[str, int], ...]:
        return self.origin or ((log, number),) * len(self.records)


class Entry(NamedTuple):
    """The object under one number of a log: ``begin``, ``commit`` or ``end``.

    ``opened`` has the shards that were still open, each with the first flush entry that contains records of it;
    ``flushed`` is the number of the last flush entry at that time. If ``adds`` is too long for an entry, the object
    ``elsewhere`` contains it, and ``checksum`` represents the checksum of that object's content.
    """

    kind: str
    by: str
    adds: tuple[Add, ...] = ()
    elsewhere: Name | None = None
    checksum: tuple[Add, ...] = ()
    opened: Numbers = ()
    flushed: int = 0
    removes: tuple[Name, ...] = ()
    forgets: tuple[tuple[Name, str], ...] = ()
    turn: int = 0
    repeats: tuple[tuple[int, tuple[Add, ...]], ...] = ()
    progress: Positions = ()
    releases: Positions = ()


class Flush(NamedTuple):
    """The object under one number of a log's flush entries: ``flush`` or ``fence``.

    ``since`` is the number of the first flush entry that this one repeats, or its own number if it repeats none.
    """

    kind: str
    by: str
    sections: tuple[tuple[int, Records], ...] = ()
    since: int = 0
    progress: Positions = ()


class Data(NamedTuple):
    """The content of a shard, a sidecar or a separate list object."""

    records: Records
    adds: tuple[Add, ...] = ()


class Owner(NamedTuple):
    """The content of a turn: the log that owns it."""

    log: str


class Line(NamedTuple):
    """A checkpoint's information about one log."""

    log: str
    last: int
    ended: str = ""
    opened: Numbers = ()
    flushed: int = 0
    releases: Positions = ()


class Listed(NamedTuple):
    """A shard of a snapshot, with the entry that added it."""

    shard: Name
    records: Records
    log: str
    number: int
    origin: tuple[tuple[str, int], ...]
    sidecar: Name | None


class Checkpoint(NamedTuple):
    """A checkpoint. ``columns`` names the object that contains its data, in configurations where that is separate."""

    turn: int
    logs: tuple[Line, ...]
    shards: tuple[Listed, ...]
    forgotten: tuple[tuple[Name, str], ...]
    progress: Positions
    columns: Name | None = None


class Pointer(NamedTuple):
    """The content of ``~latest.json``."""

    checkpoint: int


class Torn(NamedTuple):
    """The remains of a file whose content was not synced before a power cut."""

    name: Name


class Unsynced(NamedTuple):
    """The changes that a power cut may undo: each name whose folder was not synced, with its previous content.

    ``torn`` has the names whose content was not synced. This object is stored under a special name that no process
    reads.
    """

    before: tuple[tuple[Name, Content | None], ...] = ()
    torn: tuple[Name, ...] = ()


Content: TypeAlias = Entry | Flush | Data | Owner | Checkpoint | Pointer | Torn | Unsynced
Store: TypeAlias = dict[Name, Content]

DISK = Name("disk")


def sorts_in_first_page(name: Name, by: str) -> bool:
    """Return whether a name is on the first of the two pages of a torn listing, which is split between logs (``name``)
    or within each log (``number``).
    """
    if name.kind != "entry":
        return False
    return name.number < 2 if by == "number" else name.log < "N"
