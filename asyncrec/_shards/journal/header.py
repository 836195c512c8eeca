"""`JobHeader`: a job's description, which it writes before its first shard so that another process can end the job.

In a local folder or a spool, the header is in a file that the job keeps locked. In any other store it is the job's
mark, a small object. A header is one line of JSON and never contains credentials. It is untrusted input, so a malformed
line is not a header. `JobNames` has the names of a job's shards, `FoundJob` determines whether the job is alive, and
`end_job` ends it.

A folder to which jobs write (a local data set's own folder, or a spool) contains, in addition to shards,

    .pages.<maker>.partial                                  the header of a job that has not ended well
    .pages.<maker>~status.partial                           its progress, if any (`_shards.journal.status`)
    .pages-<maker>-000003.tfrecord.<maker>.partial          the journal of an open shard
    _keys/.pages-<maker>-000003.tfrecord.keys.<maker>.partial

The header's file has a line with the job's process, a line with the `JobHeader`, and a line with the machine on which
it is locked. Before a `flush` of a fixed writer returns, it adds a line ``acknowledged``. A process that takes a job
(`_shards.journal.staging`) writes a line ``taken`` after the place of that line. The functions on such files block.
Call them in worker threads.
"""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from typing import Any, Literal

from asyncrec._framing.compression import CompressionOptions
from asyncrec._records.writing.write_batch import KEY_BYTES, PAIR_BYTES
from asyncrec.storage._local.disk import read_at
from asyncrec.storage._local.storage import LocalStorage, mapped_errors

Kind = Literal["rolling", "fixed", "whole"]

# Enough for a schema of a few thousand features. A larger object with such a name is not a header.
MOST_BYTES = 16 << 20
# The maximum number of shards of a fixed data set (`asyncrec.open_sharded_writer`).
MOST_SHARDS = 1 << 20

_VERSION = "asyncrec journal 1"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.]{0,63}")
_STEM = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.]{0,127}|of-[0-9]{5,}")


def this_host() -> str:
    """Return the name of this machine, for messages. A container has a new name each time it starts."""
    return socket.gethostname()


@dataclass(frozen=True, kw_only=True)
class JobHeader:
    """The description of a job: its output, its options and its process.

    Attributes:
        kind: ``"rolling"`` commits each shard by itself; ``"fixed"`` publishes all shards at its end, and commits them
            together; ``"whole"`` publishes shards as it makes them, acknowledges none, and commits them together.
        name: the name of the data set.
        writer: the id under which the job commits, which is part of the names of its objects.
        url: the address of the data set, as the user passed it, without credentials; absolute if it is local.
        num_shards: the number of fixed shards; `None` if they are rolling.
        stems: for a copy, which keeps the names of its source: the makers in these names, and ``of-00008`` for plain
            fixed names.
        rewrites: whether the job makes shards in the place of others. The new names begin with the old ones and end
            with the job's id.
        joins: the first and the last of these other shards, if the job joins them. Because they may still be read, they
            are not deleted immediately after the commit.
        contents: whether its keys files have digests of the records' contents in addition to those of their keys.
        spool: whether the folder is a spool, in which whole shards wait to be uploaded.
        host, pid, since: the machine and process of the job, and its start time.
        detached: whether no process holds the job (`writing.detached_job`), so that no lock proves it alive or dead.
        life: the token of the lock that proves it alive (`Staging`), if the header is a mark; otherwise empty.
        silent_after: for a job that flushes to the store, the number of seconds without a change there after which it
            may be considered dead; 0 for other jobs.
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
        """Whether all shards are committed together, at the end of the job."""
        return self.kind != "rolling"

    @property
    def key_bytes(self) -> int:
        """The number of digest bytes per record in the keys files."""
        return PAIR_BYTES if self.contents else KEY_BYTES

    def encode(self) -> bytes:
        """Encode the header as a line of JSON."""
        content = {"format": _VERSION, **asdict(self)}
        return json.dumps(content, separators=(",", ":")).encode() + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> JobHeader | None:
        """Parse a line. Return `None` if it is not a header. If it is cut off, its job has made no object."""
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


def header_path(folder: LocalStorage, name: str, writer: str) -> str:
    """Return the path of a job's header."""
    return os.path.join(folder.folder, f".{name}.{writer}.partial")


def names_in(folder: LocalStorage, part: str = "") -> list[str]:
    """List a folder, or the folder ``part`` in it. Return an empty list if it does not exist."""
    path = os.path.join(folder.folder, part)
    with mapped_errors("listing", path):
        try:
            return os.listdir(path)
        except (FileNotFoundError, NotADirectoryError):
            return []


def parts_of(fd: int) -> tuple[bytes, bytes, bytes, bytes]:
    """Split a header's file into the process, the JSON, the machine, and what follows."""
    content = read_at(fd, MOST_BYTES, 0)
    process, _, rest = content.partition(b"\n")
    line, _, rest = rest.partition(b"\n")
    machine, _, rest = rest.partition(b"\n")
    return process, line, machine, rest
