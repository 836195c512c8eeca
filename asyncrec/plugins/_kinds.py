"""The types that a plugin's hooks return, `Command` and `Format`, and the types they use. Imports no slow package."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from asyncrec.example._schema import Schema

# The reason may quote the invalid input, which may be of any size.
_MOST_REASON = 500


@dataclass(frozen=True, slots=True)
class Command:
    """A command of ``asyncrec``.

    Attributes:
        name: the command's name, in lower case, with ``-`` between words.
        words: the description in ``asyncrec --help``, half a line at most.
        target: the function, as ``module:function``, imported when the command is called. The function is written for
            typer: its annotated parameters are the arguments and options, its docstring is the help, and it returns the
            exit code. `asyncrec.cli` has the options that all commands share, and output functions.
        section: the section of the help.
    """

    name: str
    words: str
    target: str
    section: str = "Plugins"


@dataclass(frozen=True, slots=True)
class BadMember:
    """A part of a file that could not be converted. ``where`` is its line, row or byte in the file."""

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
        passed: the number of members skipped because of their type.
        keys: the keys of the records, one for each. If the list is empty, the keys are ``<file>#<number>``.
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
        """Return the next bytes of the file, at most ``max_bytes``; ``b""`` at its end. Reopen a broken connection."""
        ...

    def local_copy(self) -> AbstractAsyncContextManager[str]:
        """Return a context manager that yields the path of a local file with the content, for a library that seeks.

        The local file is the file itself if it is on a disk, otherwise a temporary copy, which is deleted when the
        context exits. Use this instead of ``receive``.
        """
        ...


class Encoder(Protocol):
    """Encoder of records into a file. Its methods block, so they are called in a worker thread, one at a time."""

    def encode(self, records: Sequence[bytes], /) -> bytes:
        """Return the next bytes of the file, possibly none. An exception ends the conversion, which then writes no
        file.
        """
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
        encoder: returns the `Encoder` of a file, from the name of the file and the schema of the records (as
            ``Schema.to_json`` returns it, or `None`). It is called in a worker thread. `None` means that the format
            cannot be written.
        needs_schema: whether ``encoder`` requires a schema. If no schema is known, all records are read once to
            infer it.
    """

    name: str
    suffixes: tuple[str, ...]
    open: Callable[[SourceFile], AbstractAsyncContextManager[AsyncIterator[Converted]]] | None = None
    schema: Callable[[], Schema] | None = None
    encoder: Callable[[str, Mapping[str, Any] | None], Encoder] | None = None
    needs_schema: bool = False
