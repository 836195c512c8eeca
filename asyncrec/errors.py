"""Every error that asyncrec raises, in one hierarchy.

    AsyncRecError(Exception)
    ├─ ArgumentError                    the caller passed something invalid
    │  ├─ ArgumentValueError(ValueError)
    │  ├─ ArgumentTypeError(TypeError)
    │  ├─ RecordIndexError(IndexError)  there is no record with this number
    │  ├─ RecordKeyError(KeyError)      there is no record with this key
    │  └─ UsageError                    the options of a command contradict each other
    ├─ FormatError(ValueError)          the bytes are not those of a TFRecord file
    │  ├─ CorruptRecordError            a checksum, a length or a compressed stream is damaged
    │  │  └─ DisagreesWithIndexError    a record is not where the shard's index says
    │  ├─ TruncatedError                the file ends in the middle of a record
    │  └─ RecordTooLargeError           a record is longer than the limit
    ├─ ExampleError(ValueError)         a record is intact, but its Example is not
    │  ├─ DecodeError                   the bytes are not an Example
    │  └─ SchemaError                   a feature is missing, extra, or of another type
    ├─ StorageError(OSError)            a store failed to do what it was asked
    │  ├─ ObjectNotFoundError(FileNotFoundError)
    │  ├─ ObjectExistsError(FileExistsError)
    │  ├─ ObjectChangedError            the object is not the one that was opened
    │  ├─ StoragePermissionError(PermissionError)
    │  ├─ TransientStorageError         the same call may succeed later
    │  │  └─ UnsettledError             it is unknown whether an object was created
    │  ├─ IntegrityError                what is stored is not what was sent
    │  └─ ConflictError                 another process changed the same data set first
    ├─ ObjectTooLargeError(ValueError)  an object is larger than the limit for its use
    ├─ DatasetError(ValueError)         a set of shards contradicts itself
    │  ├─ DuplicateKeyError
    │  └─ ManifestError
    └─ PluginError                      no backend, or more than one, serves a path
       ├─ UnknownSchemeError(LookupError)
       ├─ AmbiguousSchemeError(LookupError)
       └─ UnsupportedBackendError(RuntimeError)

Each is also the built-in exception in brackets, so code that catches ``FileNotFoundError`` or ``ValueError`` need not
know asyncrec. `ArgumentError` means that the caller has to pass something else. Using an object at the wrong time (a
closed writer, a stream that is entered twice) raises a built-in or anyio error instead: ``RuntimeError`` or
``ClosedResourceError``.

An error says what to do about it, if there is something: its `remedy` ends the message, and ``asyncrec`` on the
command line says its `command` instead. All of them can be pickled, with their attributes, and so can be passed on from
a worker process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Self

__all__ = [
    "AmbiguousSchemeError",
    "ArgumentError",
    "ArgumentTypeError",
    "ArgumentValueError",
    "AsyncRecError",
    "ConflictError",
    "CorruptRecordError",
    "DatasetError",
    "DecodeError",
    "DisagreesWithIndexError",
    "DuplicateKeyError",
    "ExampleError",
    "FormatError",
    "IntegrityError",
    "ManifestError",
    "ObjectChangedError",
    "ObjectExistsError",
    "ObjectNotFoundError",
    "ObjectTooLargeError",
    "PluginError",
    "RecordIndexError",
    "RecordKeyError",
    "RecordTooLargeError",
    "SchemaError",
    "StorageError",
    "StoragePermissionError",
    "TransientStorageError",
    "TruncatedError",
    "UnknownSchemeError",
    "UnsettledError",
    "UnsupportedBackendError",
    "UsageError",
]


class AsyncRecError(Exception):
    """The root of all errors of asyncrec, except those for using an object at the wrong time.

    ``str(error)`` is the problem, and the remedy behind it.

    Attributes:
        remedy: what the caller can do about it, in terms of Python; ``""`` if the problem says all.
        command: the same for the command line; `None` if `remedy` serves both, ``""`` if there is nothing to type.
    """

    remedy: str = ""
    command: str | None = None

    @property
    def problem(self) -> str:
        """What happened, and where: without the remedy."""
        return Exception.__str__(self)  # a KeyError's own is the repr: the message in quotation marks

    def __str__(self) -> str:
        return f"{self.problem}; {self.remedy}" if self.remedy else self.problem

    @property
    def in_shell(self) -> str:
        """``str(error)`` with the command in place of the remedy."""
        advice = self.remedy if self.command is None else self.command
        return f"{self.problem}; {advice}" if advice else self.problem

    def with_remedy(self, remedy: str, *, command: str | None = None) -> Self:
        """Set `remedy` and `command`, and return the error: ``raise StorageError(...).with_remedy(...)``."""
        self.remedy, self.command = remedy, command
        return self


class ArgumentError(AsyncRecError):
    """The caller passed something that asyncrec refuses.

    Each such error is one of the subclasses, so that it is also the built-in error that Python would raise.
    """


class ArgumentValueError(ArgumentError, ValueError):
    """An argument, an option, a path or a state has a value that is not allowed."""


class ArgumentTypeError(ArgumentError, TypeError):
    """An argument has the wrong type, is missing, or is not one that the function takes."""


class RecordIndexError(ArgumentError, IndexError):
    """There is no record with this number."""


class RecordKeyError(ArgumentError, KeyError):
    """There is no record with this key."""


class UsageError(ArgumentError):
    """A command cannot do what its options ask for: they contradict each other, or a plugin is not installed."""


class FormatError(AsyncRecError, ValueError):
    """The bytes are not those of a TFRecord file.

    Attributes (each is ``None`` if it is not known):
        path: the file or URL as the caller passed it.
        offset: the byte at which the frame begins, in the decompressed stream.
        member_offset: for GZIP, the compressed byte at which the frame's member begins.
        record: how many records precede it in the file.
    """

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        offset: int | None = None,
        member_offset: int | None = None,
        record: int | None = None,
    ) -> None:
        super().__init__(message)
        self.path = path
        self.offset = offset
        self.member_offset = member_offset
        self.record = record

    @property
    def problem(self) -> str:
        """What happened, with the file, the record and the offset: without the remedy."""
        where = []
        if self.path is not None:
            where.append(self.path)
        if self.record is not None:
            where.append(f"record {self.record}")
        if self.offset is not None:
            where.append(f"offset {self.offset}")
        if self.member_offset is not None:
            where.append(f"in the GZIP member at byte {self.member_offset}")
        what = super().problem
        return f"{', '.join(where)}: {what}" if where else what


class CorruptRecordError(FormatError):
    """A checksum or a length is wrong, or a compressed stream is damaged.

    ``part`` says which: ``"length"`` (the length and its checksum disagree, so the next record cannot be found by
    counting), ``"data"`` (the data and its checksum disagree; the next record is where it should be), or
    ``"compression"``.
    """

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        offset: int | None = None,
        member_offset: int | None = None,
        record: int | None = None,
        part: str | None = None,
    ) -> None:
        super().__init__(message, path=path, offset=offset, member_offset=member_offset, record=record)
        self.part = part


class DisagreesWithIndexError(CorruptRecordError):
    """A record is not where the shard's index says. The data may be intact, but the index cannot be used."""


class TruncatedError(FormatError):
    """The file ends in the middle of a record, or of a compressed stream."""


class RecordTooLargeError(FormatError):
    """A record is longer than ``limit`` bytes (``max_record_bytes``); nothing was allocated for it."""

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        offset: int | None = None,
        member_offset: int | None = None,
        record: int | None = None,
        length: int | None = None,
        limit: int | None = None,
    ) -> None:
        super().__init__(message, path=path, offset=offset, member_offset=member_offset, record=record)
        self.length = length
        self.limit = limit


class ExampleError(AsyncRecError, ValueError):
    """A record is intact, but its Example cannot be encoded or decoded."""


class DecodeError(ExampleError):
    """The bytes are not an Example."""


class SchemaError(ExampleError):
    """A feature is missing, extra, of another type or shape, or two schemas contradict each other."""


class StorageError(AsyncRecError, OSError):
    """A store failed to do what it was asked. The message names the operation and the object."""


class ObjectNotFoundError(StorageError, FileNotFoundError):
    """There is no such object, bucket or folder."""


class ObjectExistsError(StorageError, FileExistsError):
    """The object exists already, and was to be created exclusively."""


class ObjectChangedError(StorageError):
    """The object is no longer the one that was opened: its etag differs. Open it again from the start."""


class StoragePermissionError(StorageError, PermissionError):
    """The store, or the operating system, refused access with these credentials."""


class TransientStorageError(StorageError):
    """The same call may succeed later: a timeout, a reset, a 429 or 5xx.

    Attributes:
        retry_after: how long the store asked to wait, in seconds; ``None`` if it did not say.
        lasting: whether it is more likely to last, as with a host that no name server knows. Then the call is tried a
            few times only.
    """

    def __init__(self, message: str, *, retry_after: float | None = None, lasting: bool = False) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.lasting = lasting


class UnsettledError(TransientStorageError):
    """It could not be determined whether an object was created. It may exist, so nothing may be undone.

    The same call again determines it, and succeeds if the object is there and is its own.
    """


class IntegrityError(StorageError):
    """What is stored is not what was sent, or what arrived is not what is stored."""


class ConflictError(StorageError):
    """Another process changed the same data set first.

    What this job would have made or removed was replaced, or the job itself was abandoned. Nothing of it is in the
    manifest, except what was already reported as committed.

    Attributes:
        ended: whether another process has ended the writer that raises it.
        sources: those that other writers have taken from this one. What this writer had of them and had not stored is
            dropped, because their new owners read it again. Calls that acknowledge raise until `release` is called for
            each of them.
    """

    def __init__(self, message: str, *, ended: bool = False, sources: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.ended = ended
        self.sources = sources


class ObjectTooLargeError(AsyncRecError, ValueError):
    """An object is larger than the limit for what it is read for; nothing of it was read."""


class DatasetError(AsyncRecError, ValueError):
    """A set of shards contradicts itself, or cannot be made as asked."""


class DuplicateKeyError(DatasetError):
    """A key came twice, where each key may come only once."""


class ManifestError(DatasetError):
    """A manifest segment cannot be read, or names something that it must not."""


class PluginError(AsyncRecError):
    """A plugin is not installed, or cannot be used: no backend, or more than one, serves a path; or no format does."""


class UnknownSchemeError(PluginError, LookupError):
    """No installed backend serves the scheme of the URL."""


class AmbiguousSchemeError(PluginError, LookupError):
    """Two backends serve the scheme of the URL."""


class UnsupportedBackendError(PluginError, RuntimeError):
    """The storage backend does not run on the event loop in use."""
