"""Every error asyncrec raises on its own account, in one tree.

    AsyncRecError(Exception)
    ├─ ArgumentError                    what the caller gave is refused
    │  ├─ ArgumentValueError(ValueError)
    │  ├─ ArgumentTypeError(TypeError)
    │  ├─ RecordIndexError(IndexError)  there is no record of that number
    │  ├─ RecordKeyError(KeyError)      there is no record with that key
    │  └─ UsageError                    the options of a command contradict each other
    ├─ FormatError(ValueError)          the bytes are not what a TFRecord file holds
    │  ├─ CorruptRecordError            a checksum, a length or a compressed stream does not hold
    │  │  └─ DisagreesWithIndexError    a record does not stand where the shard's index says
    │  ├─ TruncatedError                the file ends in the middle of a record
    │  └─ RecordTooLargeError           a record is longer than the limit
    ├─ ExampleError(ValueError)         a record is whole, its Example is not
    │  ├─ DecodeError                   the bytes are no Example
    │  └─ SchemaError                   a feature is missing, extra, or of another type
    ├─ StorageError(OSError)            a store did not do what it was asked
    │  ├─ ObjectNotFoundError(FileNotFoundError)
    │  ├─ ObjectExistsError(FileExistsError)
    │  ├─ ObjectChangedError            the object is not the one that was opened
    │  ├─ StoragePermissionError(PermissionError)
    │  ├─ TransientStorageError         the same call may succeed later
    │  │  └─ UnsettledError             whether an object was created could not be found out
    │  ├─ IntegrityError                what is stored is not what was sent
    │  └─ ConflictError                 somebody else decided otherwise about the same data set meanwhile
    ├─ ObjectTooLargeError(ValueError)  an object is larger than what it is read for may be
    ├─ DatasetError(ValueError)         a set of shards contradicts itself
    │  ├─ DuplicateKeyError
    │  └─ ManifestError
    └─ PluginError                      no backend, or not one backend, for a path
       ├─ UnknownSchemeError(LookupError)
       ├─ AmbiguousSchemeError(LookupError)
       └─ UnsupportedBackendError(RuntimeError)

Each is also the builtin in brackets, so code that catches ``FileNotFoundError`` or ``ValueError`` need not know
asyncrec. `ArgumentError` means that the caller has to give something else. What is used at the wrong time (a writer
that is closed, a stream that is entered twice) raises a builtin or anyio error: ``RuntimeError``,
``ClosedResourceError``.

All of them pickle, so that they cross from a worker process whole: details are attributes beside a message.
"""

from __future__ import annotations

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
    """The root of all errors of asyncrec, except those for using an object at the wrong time."""


class ArgumentError(AsyncRecError):
    """The caller passed something that asyncrec refuses.

    Each such error is one of the subclasses, so that it is also the built-in error that Python would raise.
    """


class ArgumentValueError(ArgumentError, ValueError):
    """An argument, an option, a path or a state has a value that it cannot have."""


class ArgumentTypeError(ArgumentError, TypeError):
    """An argument is of a type that it cannot be of, is missing, or is not one that the function takes."""


class RecordIndexError(ArgumentError, IndexError):
    """There is no record of the number that was asked for."""


class RecordKeyError(ArgumentError, KeyError):
    """There is no record with the key that was asked for."""


class UsageError(ArgumentError):
    """A command cannot do what its options ask for: they contradict each other, or a plugin is not installed."""


class FormatError(AsyncRecError, ValueError):
    """The bytes are not what a TFRecord file holds.

    Attributes (each ``None`` where it is not known; the layer that knows it fills it in):
        path: the file or URL as the caller gave it.
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

    def __str__(self) -> str:
        where = []
        if self.path is not None:
            where.append(self.path)
        if self.record is not None:
            where.append(f"record {self.record}")
        if self.offset is not None:
            where.append(f"offset {self.offset}")
        if self.member_offset is not None:
            where.append(f"in the GZIP member at byte {self.member_offset}")
        message: str = self.args[0]
        return f"{', '.join(where)}: {message}" if where else message


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
    """A record does not stand where the shard's index says. Nothing need be damaged, but the index cannot be used."""


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
    """A record is whole, but its Example cannot be made or read."""


class DecodeError(ExampleError):
    """The bytes are no Example."""


class SchemaError(ExampleError):
    """A feature is missing, extra, of another type or shape, or two schemas contradict each other."""


class StorageError(AsyncRecError, OSError):
    """A store failed to do what it was asked. The message names the operation and the object."""


class ObjectNotFoundError(StorageError, FileNotFoundError):
    """There is no such object, bucket or folder."""


class ObjectExistsError(StorageError, FileExistsError):
    """The object is there already, and was to be created exclusively."""


class ObjectChangedError(StorageError):
    """The object is no longer the one that was opened: its etag differs. Open it again from the start."""


class StoragePermissionError(StorageError, PermissionError):
    """The store, or the operating system, refuses the credentials at hand."""


class TransientStorageError(StorageError):
    """The same call may succeed later: a timeout, a reset, a 429 or 5xx.

    ``retry_after`` is what the store asked for, in seconds; ``None`` where it said nothing.
    """

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class UnsettledError(TransientStorageError):
    """Whether an object was created could not be found out: it may be there, and nothing may be taken back.

    The same call again finds out: it is content when the object is there and its own.
    """


class IntegrityError(StorageError):
    """What is stored is not what was sent, or what came is not what is stored."""


class ConflictError(StorageError):
    """Another process changed the same data set first.

    What this job would have made or removed was replaced, or the job itself was abandoned. Nothing of it is in the
    manifest, except what was already reported as committed.
    """


class ObjectTooLargeError(AsyncRecError, ValueError):
    """An object is larger than what it is read for may be; nothing of it was read."""


class DatasetError(AsyncRecError, ValueError):
    """A set of shards contradicts itself, or cannot be made as asked."""


class DuplicateKeyError(DatasetError):
    """A key came twice where each may come once."""


class ManifestError(DatasetError):
    """A manifest segment cannot be read, or names what it must not."""


class PluginError(AsyncRecError):
    """A plugin is not installed, or cannot be used: there is no backend, or not one, for a path, or no such format."""


class UnknownSchemeError(PluginError, LookupError):
    """No installed backend answers to the scheme of the URL."""


class AmbiguousSchemeError(PluginError, LookupError):
    """Two backends answer to the scheme of the URL."""


class UnsupportedBackendError(PluginError, RuntimeError):
    """The storage backend does not run on the event loop in use."""
