"""`JobHeader`: what a job says of itself before its first shard, for whoever may have to finish it or give it up.

In a local folder, or a spool, the header stands in a file that the job keeps locked (`_shards.journal.journal`); in any
other store it is the job's mark, a small object. A header is one line of JSON and never holds credentials. It is input
like any other: what is malformed is not a header.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, Literal

from asyncrec._framing.compression import CompressionOptions
from asyncrec._shards.manifest.names import fixed_shard_name, maker_of, rolling_shard_name, stem_of

Kind = Literal["rolling", "fixed", "whole"]

# A schema of some thousand features; a larger object of that name is no header.
MOST_BYTES = 16 << 20
# As many as a fixed data set may have (`asyncrec.open_sharded_writer`).
MOST_SHARDS = 1 << 20

_VERSION = "asyncrec journal 2"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.]{0,63}")
_STEM = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.]{0,127}|of-[0-9]{5,}")


@dataclass(frozen=True, kw_only=True)
class JobHeader:
    """The description of a job: what it makes, how, and in which process.

    Attributes:
        kind: ``"rolling"`` commits each shard by itself; ``"fixed"`` publishes all at its end, and commits them
            together; ``"whole"`` publishes shards as it makes them, promises nothing, and commits them together.
        name: of the data set.
        writer: the id under which it commits, and that stands in the names of what it makes.
        url: of the data set, as the user gave it, without credentials; absolute where it is local.
        num_shards: of fixed names; `None` when they roll.
        stems: of a copy, which keeps the names it finds: the makers in them, and ``of-00008`` for plain fixed ones.
        spool: the folder is a spool: whole shards in it wait to be uploaded.
        host, pid, since: of its process, and when it began.
        detached: no process holds it (`writing.detached_job`): a lock proves it neither alive nor dead.
        life: the token of the lock that proves it alive (`ownership.liveness`), where the header is a mark; else empty.
    """

    kind: Kind
    name: str
    writer: str
    url: str
    num_shards: int | None = None
    stems: tuple[str, ...] = ()
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

    @property
    def together(self) -> bool:
        """Whether everything is committed at once, at the end of the job."""
        return self.kind != "rolling"

    def recover_command(self, where: str, *, abandon: bool = False) -> str:
        """What recovers it, or gives it up, as it is typed; ``where`` is its data set's path, or its spool's."""
        return recover_command(where, to=self.url if self.spool else None, abandon=self.writer if abandon else None)

    def shard_name(self, number: int, *, plain: bool = False) -> str:
        """Name the shard of this number; ``plain`` where the job may use the names without a maker."""
        if self.num_shards is None:
            return rolling_shard_name(self.name, self.writer, number)
        return fixed_shard_name(self.name, number, self.num_shards, "" if plain else self.writer)

    def makes(self, shard: str, *, plain: bool) -> bool:
        """Whether the job makes a shard of this name; ``plain`` where it may use the names without a maker.

        No other name is: one may be of another data set whose own goes on where this one's ends. What a copy makes
        under names that it found is not its own: it is there for the next copy.
        """
        found = maker_of(self.name, shard)
        if found is None:
            return False
        maker, rolling = found
        if rolling:
            return self.num_shards is None and (maker or "").partition(".")[0] == self.writer
        own = maker == self.writer or (maker is None and plain)
        return own and self.num_shards is not None and shard.endswith(f"-of-{self.num_shards:05d}.tfrecord")

    def begins(self, shard: str) -> bool:
        """Whether the job may have an unfinished file for a shard of this name."""
        return self.makes(shard, plain=True) or stem_of(self.name, shard) in self.stems

    @property
    def age(self) -> float:
        """How many seconds ago the job began, by this machine's clock; 0 where the header does not say."""
        if not self.since:
            return 0.0
        return max(0.0, (datetime.now(UTC) - datetime.fromisoformat(self.since)).total_seconds())

    def encode(self) -> bytes:
        """Return the line of JSON."""
        content = {"format": _VERSION, **asdict(self)}
        return json.dumps(content, separators=(",", ":")).encode() + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> JobHeader | None:
        """Read a line; `None` when it is no header, or is cut off: then its job had made nothing yet."""
        try:
            content = json.loads(line)
            if content.pop("format") != _VERSION:
                return None
            compression = CompressionOptions(**content.pop("compression"))
            header = cls(**{**content, "compression": compression, "stems": tuple(content.get("stems", ()))})
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
            and type(self.spool) is bool
            and type(self.index) is bool
            and type(self.detached) is bool
            and (not self.detached or self.kind == "whole")
            and type(self.pid) is int
            and isinstance(self.schema, Mapping | None)
            and isinstance(self.metadata, Mapping)
            and (not self.since or datetime.fromisoformat(self.since).tzinfo is not None)
        )


def recover_command(path: str, *, to: str | None = None, abandon: str | None = None) -> str:
    """`asyncrec.recover` as it is typed in a shell, in quotation marks: for messages, which both readers understand."""
    words = ["asyncrec", "recover", path, *(["--to", to] if to else []), *(["--abandon", abandon] if abandon else [])]
    command = shlex.join(words)
    quote = '"' if "'" in command else "'"
    return f"{quote}{command}{quote}"
