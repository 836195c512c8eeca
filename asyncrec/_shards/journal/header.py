"""`JobHeader`: a job's description, which it writes before its first shard so that another process can end the job.

In a local folder or a spool, the header is in a file that the job keeps locked. In any other store, it is the job's
mark, a small object. A header is one line of JSON and never contains credentials. It is untrusted input, so a malformed
line is ignored. `JobNames` knows the names of a job's shards, `FoundJob` determines whether the job is alive, and
`end_job` ends it.

A folder to which jobs write (a local data set's own folder, or a spool) contains, in addition to shards,

    .pages.<maker>.partial                                  the header of a job that has not finished cleanly
    .pages.<maker>~status.partial                           the job's status, if it has one (`_shards.journal.status`)
    .pages-<maker>-000003.tfrecord.<maker>.partial          the journal of an open shard
    _keys/.pages-<maker>-000003.tfrecord.keys.<maker>.partial

The header's file has one line for the job's process, one for the `JobHeader`, and one for the machine on which the file
is locked. The first `flush` of a fixed writer adds a fourth line, ``acknowledged``, before it returns. A process that
takes over a job (`_shards.journal.staging`) writes the line ``taken`` at the offset after the fourth line, whether or
not that line exists. The functions that access these files block. Call them in worker threads.
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

# Enough for a schema of a few thousand features. A larger object is not a header, even if it is named like one.
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
        kind: a ``"rolling"`` job commits each shard separately. A ``"fixed"`` job publishes all shards when it
            finishes, and commits them together. A ``"whole"`` job publishes each shard as soon as it is complete, but
            commits all of them together and acknowledges no records before that.
        name: the name of the data set.
        writer: the id under which the job commits; it is part of the names of the job's objects.
        url: the address of the data set, as the user passed it, without credentials; absolute if it is local.
        num_shards: the number of fixed shards; `None` if the shards are rolling.
        stems: if the job is a copy that keeps the shard names of its source, the makers in those names, and
            ``of-00008`` for plain fixed names.
        rewrites: whether the job creates shards that replace others. The new names begin with the old ones and end with
            the job's id.
        joins: the first and the last shard that are replaced, if the job joins shards. Because the old shards may still
            be read, they are not deleted immediately after the commit.
        contents: whether the keys files contain digests of the records' contents in addition to those of their keys.
        spool: whether the folder is a spool, in which complete shards wait to be uploaded.
        host, pid, since: the machine and process of the job, and its start time.
        detached: whether the job is not tied to a process (`writing.detached_job`), so that no lock proves it alive.
        life: the token of the lock that proves the job alive (`Staging`), if the header is a mark; otherwise empty.
        silent_after: for a job that flushes to the store, the number of seconds without a change in the store after
            which the job may be considered dead; 0 for other jobs.
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
        """Whether all shards are committed together when the job finishes."""
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
        """Parse a line. Return `None` if it is not a header. If it was cut off, its job has not created any object."""
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
    """List a folder, or its subfolder ``part``. Return an empty list if the folder does not exist."""
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
