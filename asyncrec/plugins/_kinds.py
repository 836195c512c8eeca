"""`Command` and `Format`, which a plugin's hooks return, and the types that they use. No slow packages are imported."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from asyncrec.example._schema import Schema

# A reason is truncated to this many characters, because it may quote invalid input of any size.
_MOST_REASON = 500


@dataclass(frozen=True, slots=True)
class Command:
    """A command of ``asyncrec``.

    Attributes:
        name: the command's name, in lower case, with ``-`` between words.
        words: the description in ``asyncrec --help``, at most half a line.
        target: the function, as ``module:function``, imported when the command is called. The function is written for
            typer: its annotated parameters are the arguments and options, its docstring is the help, and it returns the
            exit code. `asyncrec.cli` provides the options shared by all commands, and functions for output.
        section: the section of the help.
    """

    name: str
    words: str
    target: str
    section: str = "Plugins"


@dataclass(frozen=True, slots=True)
class BadMember:
    """A part of a file that could not be converted. ``where`` locates it in the file by line, row or byte."""

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
    """The next records of a file, and the invalid parts between them.

    Attributes:
        passed: the number of members that were skipped because of their type.
        keys: the key of each record. If the list is empty, the keys are ``<file>#<number>``.
    """

    records: list[bytes] = field(default_factory=list)
    bad: list[BadMember] = field(default_factory=list)
    passed: int = 0
    keys: list[str] = field(default_factory=list)


class SourceFile(Protocol):
    """A file to convert to records, in any store.

    Attributes:
        path: the path, for messages and for `BadMember`.
        max_record_bytes: the maximum size of a record.
    """

    path: str
    max_record_bytes: int

    async def receive(self, max_bytes: int) -> bytes:
        """Return the next bytes of the file, at most ``max_bytes``; ``b""`` at the end. Reopens broken connections."""
        ...

    def local_copy(self) -> AbstractAsyncContextManager[str]:
        """Return a context manager that yields the path of a local file with the content, for libraries that seek.

        The local file is the file itself if it is on a disk, otherwise a temporary copy, which is deleted when the
        context exits. Use either this method or ``receive``.
        """
        ...


class Encoder(Protocol):
    """An encoder of records to a file. Its methods block, so they are called in a worker thread, one at a time."""

    def encode(self, records: Sequence[bytes], /) -> bytes:
        """Return the next bytes of the file, possibly none. If an exception is raised, no file is written."""
        ...

    def finish(self) -> bytes:
        """Return the last bytes of the file."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A kind of file that `asyncrec.tools.convert` reads, or writes, or both.

    Attributes:
        name: the format's name in ``--from NAME``, in lower case.
        suffixes: the suffixes of such files, in lower case, each with its dot: ``(".warc", ".warc.gz")``.
        open: opens a context for reading a file. The context yields an iterator over `Converted`, in the order of the
            file. The iterator reports invalid parts of the file, and continues after them if possible. Work that takes
            more than a millisecond belongs in a thread (`asyncrec.storage.in_thread`). `None` means that the format
            cannot be read.
        schema: returns the schema of the records that ``open`` yields. `None` unless the schema is always the same.
        encoder: returns the `Encoder` for a file, given the name of the file and the schema of the records (as returned
            by ``Schema.to_json``, or `None`). It is called in a worker thread. `None` means that the format cannot be
            written.
        needs_schema: whether ``encoder`` requires a schema. If no schema is known, all records are read once to
            infer it.
    """

    name: str
    suffixes: tuple[str, ...]
    open: Callable[[SourceFile], AbstractAsyncContextManager[AsyncIterator[Converted]]] | None = None
    schema: Callable[[], Schema] | None = None
    encoder: Callable[[str, Mapping[str, Any] | None], Encoder] | None = None
    needs_schema: bool = False
