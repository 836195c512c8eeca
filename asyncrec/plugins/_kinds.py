"""What a plugin gives to the hooks: `Command` and `Format`, and what these work with. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from asyncrec.example._schema import Schema

# It may show what was found, of any size.
_MOST_REASON = 500


@dataclass(frozen=True, slots=True)
class Command:
    """A command of ``asyncrec``.

    Attributes:
        name: in lower case, with ``-`` between words.
        words: what ``asyncrec --help`` says of it, in half a line.
        target: where its function is, as ``module:function``; imported when the command is called. The function is
            made for typer: its annotated parameters are the arguments and options, its docstring is the help, and it
            returns the exit code. `asyncrec.cli` has the options that all commands share, and what prints.
        section: of the help.
    """

    name: str
    words: str
    target: str
    section: str = "Plugins"


@dataclass(frozen=True, slots=True)
class BadMember:
    """What could not be converted: ``where`` is the line, the row or the byte of the file."""

    path: str
    where: str
    reason: str

    def __post_init__(self) -> None:
        if len(self.reason) > _MOST_REASON:
            object.__setattr__(self, "reason", f"{self.reason[:_MOST_REASON]}…")

    def to_json(self) -> dict[str, Any]:
        return {"path": self.path, "where": self.where, "reason": self.reason}


@dataclass(slots=True)
class Converted:
    """The next records of a file, and what was bad between them.

    Attributes:
        passed: how many members are not wanted.
        keys: of the records, one for each; where it is empty they are ``<file>#<number>``.
    """

    records: list[bytes] = field(default_factory=list)
    bad: list[BadMember] = field(default_factory=list)
    passed: int = 0
    keys: list[str] = field(default_factory=list)


class SourceFile(Protocol):
    """A file that is converted to records, in whatever store it is.

    Attributes:
        path: by which a person knows it: for `BadMember`.
        max_record_bytes: no record may be larger; what would be is bad.
    """

    path: str
    max_record_bytes: int

    async def receive(self, max_bytes: int) -> bytes:
        """The next bytes of the file, at most so many; ``b""`` at its end. A connection that breaks is made again."""
        ...

    def local_copy(self) -> AbstractAsyncContextManager[str]:
        """The path of a local file with the content, for a library that seeks.

        The file itself where it is on a disk, otherwise a temporary copy, which is gone behind the context. To be
        used instead of ``receive``.
        """
        ...


class Encoder(Protocol):
    """Makes a file of records. Its methods block: they are called in a worker thread, one at a time."""

    def encode(self, records: Sequence[bytes], /) -> bytes:
        """The next bytes of the file, perhaps none yet. What it raises ends the conversion, and nothing is written."""
        ...

    def finish(self) -> bytes:
        """The last bytes of the file."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A kind of file that `asyncrec.tools.convert` reads, or writes, or both.

    Attributes:
        name: as in ``--from NAME``; in lower case.
        suffixes: of files that have it, in lower case, each with its dot: ``(".warc", ".warc.gz")``.
        open: the context in which a file is read. It gives an iterator over `Converted`, in the order of the file. What
            is bad in the file is told there, and reading goes on behind it where that can be found; what takes longer
            than a millisecond is done in a thread (`asyncrec.storage.in_thread`). `None`: the format is not read.
        schema: of the records that ``open`` gives, where it is always the same one.
        encoder: makes the `Encoder` of a file, of the name of the file and of the records' schema, as
            ``Schema.to_json`` gives it, or `None`. Called in a worker thread. `None`: the format is not written.
        needs_schema: ``encoder`` is always given a schema; where none is known, all records are read once to infer it.
    """

    name: str
    suffixes: tuple[str, ...]
    open: Callable[[SourceFile], AbstractAsyncContextManager[AsyncIterator[Converted]]] | None = None
    schema: Callable[[], Schema] | None = None
    encoder: Callable[[str, Mapping[str, Any] | None], Encoder] | None = None
    needs_schema: bool = False
