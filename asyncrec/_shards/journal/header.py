"""`JobHeader`: what a job says of itself before its first shard, so that another process can finish it or give it up.

In a local folder or a spool, the header is in a file that the job keeps locked (`_shards.journal.headers`). In any
other store it is the job's mark, a small object. A header is one line of JSON and never holds credentials. It is input
like any other: a malformed one is not a header. It is a value: `JobNames` says what a job's shards are called,
`FoundJob` whether the job lives, and `end_job` what becomes of it.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from typing import Any, Literal

from asyncrec._framing.compression import CompressionOptions
from asyncrec._records.writing.write_batch import KEY_BYTES, PAIR_BYTES

Kind = Literal["rolling", "fixed", "whole"]

# A schema of some thousand features; a larger object of that name is not a header.
MOST_BYTES = 16 << 20
# As many as a fixed data set may have (`asyncrec.open_sharded_writer`).
MOST_SHARDS = 1 << 20

_VERSION = "asyncrec journal 2"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.]{0,63}")
_STEM = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.]{0,127}|of-[0-9]{5,}")


def this_host() -> str:
    """Return the name of this machine, for people: a container has a new one each time that it starts."""
    return socket.gethostname()


@dataclass(frozen=True, kw_only=True)
class JobHeader:
    """The description of a job: what it makes, how, and in which process.

    Attributes:
        kind: ``"rolling"`` commits each shard by itself; ``"fixed"`` publishes all at its end, and commits them
            together; ``"whole"`` publishes shards as it makes them, promises nothing, and commits them together.
        name: of the data set.
        writer: the id under which it commits, and that is in the names of what it makes.
        url: of the data set, as the user gave it, without credentials; absolute if it is local.
        num_shards: of fixed names; `None` if they roll.
        stems: of a copy, which keeps the names it finds: the makers in them, and ``of-00008`` for plain fixed ones.
        rewrites: it makes shards in the place of others, with names that begin with theirs and end in its id.
        joins: the first and the last of these others, if it joins them and leaves them to those who read them: behind
            the commit they are not deleted at once.
        contents: its keys files have a digest of each record's content beside that of its key.
        spool: the folder is a spool: whole shards in it wait to be uploaded.
        host, pid, since: of its process, and when it began.
        detached: no process holds it (`writing.detached_job`): a lock proves it neither alive nor dead.
        life: the token of the lock that proves it alive (`Staging`), if the header is a mark; else empty.
        silent_after: it flushes to the store, and may be taken for dead if nothing of it changes there for this many
            seconds; 0 if it never flushes to the store.
    """

    kind: Kind
    name: str
    writer: str
    url: str
    num_shards: int | None = None
    stems: tuple[str, ...] = ()
    rewrites: bool = False
    joins: tuple[str, ...] = ()
    contents: bool = False
    spool: bool = False
    index: bool = True
    compression: CompressionOptions = field(default_factory=CompressionOptions)
    schema: Mapping[str, Any] | None = None
    metadata: Mapping[str, Any]
    host: str = ""
    pid: int = 0
    since: str = ""
    detached: bool = False
    life: str = ""
    silent_after: float = 0.0

    @property
    def together(self) -> bool:
        """Whether everything is committed at once, at the end of the job."""
        return self.kind != "rolling"

    @property
    def key_bytes(self) -> int:
        """How many bytes of digests its keys files have for each record."""
        return PAIR_BYTES if self.contents else KEY_BYTES

    def encode(self) -> bytes:
        """Return the line of JSON."""
        content = {"format": _VERSION, **asdict(self)}
        return json.dumps(content, separators=(",", ":")).encode() + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> JobHeader | None:
        """Read a line; `None` if it is not a header, or is cut off: then its job had made nothing yet."""
        try:
            content = json.loads(line)
            if content.pop("format") != _VERSION:
                return None
            compression = CompressionOptions(**content.pop("compression"))
            lists = {each: tuple(content.get(each, ())) for each in ("stems", "joins")}
            header = cls(**{**content, **lists, "compression": compression})
            return header if header._is_sound() else None
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None

    def _is_sound(self) -> bool:
        texts = all(isinstance(getattr(self, each.name), str) for each in fields(self) if each.type == "str")
        return (
            texts
            and self.kind in ("rolling", "fixed", "whole")
            and self.name != ""
            and not set("/\0") & set(self.name)
            and _ID.fullmatch(self.writer) is not None
            and (self.num_shards is None or (type(self.num_shards) is int and 0 < self.num_shards <= MOST_SHARDS))
            and (self.kind != "fixed" or self.num_shards is not None)
            and all(isinstance(stem, str) and _STEM.fullmatch(stem) for stem in self.stems)
            and type(self.rewrites) is bool
            and len(self.joins) in (0, 2)
            and all(isinstance(shard, str) for shard in self.joins)
            and type(self.contents) is bool
            and type(self.spool) is bool
            and type(self.index) is bool
            and type(self.detached) is bool
            and (not self.detached or self.kind == "whole")
            and type(self.pid) is int
            and type(self.silent_after) in (int, float)
            and 0 <= self.silent_after < 1e9
            and isinstance(self.schema, Mapping | None)
            and isinstance(self.metadata, Mapping)
            and (not self.since or datetime.fromisoformat(self.since).tzinfo is not None)
        )
