"""Every error that asyncrec raises, in one hierarchy.

    AsyncRecError(Exception)
    ├─ ArgumentError                    the caller passed an invalid argument
    │  ├─ ArgumentValueError(ValueError)
    │  ├─ ArgumentTypeError(TypeError)
    │  ├─ RecordIndexError(IndexError)  there is no record with this number
    │  ├─ RecordKeyError(KeyError)      there is no record with this key
    │  └─ UsageError                    the options of a command contradict each other
    ├─ FormatError(ValueError)          the bytes are not a valid TFRecord file
    │  ├─ CorruptRecordError            a checksum, a length or a compressed stream is damaged
    │  │  └─ DisagreesWithIndexError    a record is not where the shard's index says
    │  ├─ TruncatedError                the file ends in the middle of a record
    │  └─ RecordTooLargeError           a record is longer than the limit
    ├─ ExampleError(ValueError)         a record is intact, but its Example is not
    │  ├─ DecodeError                   the bytes are not an Example
    │  └─ SchemaError                   a feature is missing, extra, or of another type
    ├─ StorageError(OSError)            an operation of a store failed
    │  ├─ ObjectNotFoundError(FileNotFoundError)
    │  ├─ ObjectExistsError(FileExistsError)
    │  ├─ ObjectChangedError            the object is not the one that was opened
    │  ├─ StoragePermissionError(PermissionError)
    │  ├─ TransientStorageError         the same call may succeed later
    │  │  └─ UnsettledError             it is unknown whether an object was created
    │  ├─ IntegrityError                the stored data differ from the data that were sent
    │  └─ ConflictError                 another process changed the same data set first
    ├─ ObjectTooLargeError(ValueError)  an object is larger than the limit for its use
    ├─ DatasetError(ValueError)         a set of shards contradicts itself
    │  ├─ DuplicateKeyError
    │  └─ ManifestError
    └─ PluginError                      no backend, or more than one, serves a path
       ├─ UnknownSchemeError(LookupError)
       ├─ AmbiguousSchemeError(LookupError)
       └─ UnsupportedBackendError(RuntimeError)

Each error is also the built-in exception in parentheses, so code that catches ``FileNotFoundError`` or ``ValueError``
need not know asyncrec. `ArgumentError` means that the caller must pass a different argument. Using an object at the
wrong time (a closed writer, a stream that is entered twice) raises a built-in or anyio error instead: ``RuntimeError``
or ``ClosedResourceError``.

If an error has a remedy, the message ends with the remedy: the attribute `remedy`, or `command` on the ``asyncrec``
command line. All errors can be pickled with their attributes, so a worker process can pass them on.
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
    """The base class of all errors of asyncrec, except those for using an object at the wrong time.

    ``str(error)`` is the problem followed by the remedy.

    Attributes:
        remedy: the remedy, in terms of Python; ``""`` if there is no remedy.
        command: the remedy for the command line; `None` if it is the same as `remedy`, ``""`` if no command helps.
    """

    remedy: str = ""
    command: str | None = None

    @property
    def problem(self) -> str:
        """The problem and its location, without the remedy."""
        return Exception.__str__(self)  # KeyError.__str__ would return the repr of the message

    def __str__(self) -> str:
        return f"{self.problem}; {self.remedy}" if self.remedy else self.problem

    @property
    def in_shell(self) -> str:
        """``str(error)`` with `command` in place of `remedy`."""
        advice = self.remedy if self.command is None else self.command
        return f"{self.problem}; {advice}" if advice else self.problem

    def with_remedy(self, remedy: str, *, command: str | None = None) -> Self:
        """Set `remedy` and `command`, and return the error: ``raise StorageError(...).with_remedy(...)``."""
        self.remedy, self.command = remedy, command
        return self


class ArgumentError(AsyncRecError):
    """The caller passed an invalid argument.

    Only subclasses are raised, each of which is also the built-in error that Python would raise.
    """


class ArgumentValueError(ArgumentError, ValueError):
    """An argument, an option, a path or a state has a value that is not allowed."""


class ArgumentTypeError(ArgumentError, TypeError):
    """An argument has the wrong type, is missing, or is unknown to the function."""


class RecordIndexError(ArgumentError, IndexError):
    """There is no record with this number."""


class RecordKeyError(ArgumentError, KeyError):
    """There is no record with this key."""


class UsageError(ArgumentError):
    """The options of a command contradict each other, or need a plugin that is not installed."""


class FormatError(AsyncRecError, ValueError):
    """The bytes are not a valid TFRecord file.

    Attributes (each is ``None`` if it is not known):
        path: the file or URL, as the caller passed it.
        offset: the offset of the frame in the decompressed stream.
        member_offset: for GZIP, the offset of the frame's member in the compressed file.
        record: the index of the record in the file, counted from 0.
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
        """The problem with the file, the record and the offset, but without the remedy."""
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

    ``part`` is the damaged part: ``"length"`` (the length does not match its checksum, so the offset of the next record
    is unknown), ``"data"`` (the data do not match their checksum, but the offset of the next record is known), or
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
    """A record is longer than ``limit`` bytes (``max_record_bytes``). No memory was allocated for it."""

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
    """An operation of a store failed. The message names the operation and the object."""


class ObjectNotFoundError(StorageError, FileNotFoundError):
    """The object, bucket or folder does not exist."""


class ObjectExistsError(StorageError, FileExistsError):
    """The object already exists, but was to be created exclusively."""


class ObjectChangedError(StorageError):
    """The object's etag has changed since the object was opened. Open it again, and read it from the start."""


class StoragePermissionError(StorageError, PermissionError):
    """The store or the operating system denied access."""


class TransientStorageError(StorageError):
    """The same call may succeed later, for example after a timeout, a connection reset, or a status of 429 or 5xx.

    Attributes:
        retry_after: the delay in seconds that the store requested; ``None`` if it requested none.
        lasting: whether the error is likely to persist, as with an unknown host. Such calls are retried only a few
            times.
    """

    def __init__(self, message: str, *, retry_after: float | None = None, lasting: bool = False) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.lasting = lasting


class UnsettledError(TransientStorageError):
    """It is unknown whether an object was created. The object may exist, so the caller must not undo anything.

    A repeated call checks whether the object exists, and succeeds if the first call created it.
    """


class IntegrityError(StorageError):
    """The stored data differ from the data that were sent, or the received data differ from the stored data."""


class ConflictError(StorageError):
    """Another process changed the same data set first.

    The objects that this job was to create or remove were replaced, or the job itself was abandoned. The manifest
    contains none of the job's work, except work already reported as committed.

    Attributes:
        ended: whether another process has ended the writer that raised the error.
        sources: the sources that other writers have taken over from this writer. This writer's unstored records of
            these sources are discarded, because the new owners read them again. Calls that acknowledge records raise
            until `release` has been called for each of these sources.
    """

    def __init__(self, message: str, *, ended: bool = False, sources: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.ended = ended
        self.sources = sources


class ObjectTooLargeError(AsyncRecError, ValueError):
    """An object is larger than the limit for its use. It was not read."""


class DatasetError(AsyncRecError, ValueError):
    """A set of shards contradicts itself, or cannot be made as requested."""


class DuplicateKeyError(DatasetError):
    """A key occurs more than once where keys must be unique."""


class ManifestError(DatasetError):
    """A manifest cannot be read, or contains a path or value that is not allowed."""


class PluginError(AsyncRecError):
    """A plugin cannot be used, or a path has no backend, several backends, or no format."""


class UnknownSchemeError(PluginError, LookupError):
    """No installed backend serves the scheme of the URL."""


class AmbiguousSchemeError(PluginError, LookupError):
    """Two backends serve the scheme of the URL."""


class UnsupportedBackendError(PluginError, RuntimeError):
    """The storage backend does not run on the event loop in use."""
