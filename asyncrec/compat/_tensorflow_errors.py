"""``tf.errors``: the errors of `asyncrec.compat.tensorflow` under TensorFlow's names, for existing ``except`` clauses.

Each error is an instance of two classes: asyncrec's own class, which states the path, the offset and a remedy, and one
of the classes below. If TensorFlow has been imported, clauses such as ``except tensorflow.errors.DataLossError`` also
catch the error.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import anyio

from asyncrec import errors as ours


class OpError(Exception):
    """The base class of these errors, with the attributes of TensorFlow's OpError. ``op`` is always `None`."""

    error_code: ClassVar[int] = 2
    op: ClassVar[None] = None
    node_def: ClassVar[None] = None

    @property
    def message(self) -> str:
        return str(self)


class CancelledError(OpError):
    error_code = 1


class UnknownError(OpError):
    error_code = 2


class InvalidArgumentError(OpError):
    error_code = 3


class DeadlineExceededError(OpError):
    error_code = 4


class NotFoundError(OpError):
    error_code = 5


class AlreadyExistsError(OpError):
    error_code = 6


class PermissionDeniedError(OpError):
    error_code = 7


class ResourceExhaustedError(OpError):
    error_code = 8


class FailedPreconditionError(OpError):
    error_code = 9


class AbortedError(OpError):
    error_code = 10


class OutOfRangeError(OpError):
    error_code = 11


class UnimplementedError(OpError):
    error_code = 12


class InternalError(OpError):
    error_code = 13


class UnavailableError(OpError):
    error_code = 14


class DataLossError(OpError):
    error_code = 15


class UnauthenticatedError(OpError):
    error_code = 16


# An error's errno determines its class. If its errno is not listed, the first matching entry of _BY_KIND does.
_BY_ERRNO: dict[int | None, type[OpError]] = {
    errno.EISDIR: FailedPreconditionError,
    errno.ENOTDIR: FailedPreconditionError,
    errno.ENOSPC: ResourceExhaustedError,
    errno.EDQUOT: ResourceExhaustedError,
    errno.EMFILE: ResourceExhaustedError,
    errno.ENFILE: ResourceExhaustedError,
}
_BY_KIND: tuple[tuple[type[Exception], type[OpError]], ...] = (
    (ours.FormatError, DataLossError),
    (ours.IntegrityError, DataLossError),
    (ours.ObjectNotFoundError, NotFoundError),
    (ours.ObjectExistsError, AlreadyExistsError),
    (ours.StoragePermissionError, PermissionDeniedError),
    (ours.TransientStorageError, UnavailableError),
    (ours.PluginError, UnimplementedError),
    (anyio.ClosedResourceError, FailedPreconditionError),
)


def as_tensorflow(error: Exception) -> Exception:
    """Return the error after adding the matching TensorFlow class to its type, except for argument errors."""
    if isinstance(error, ours.ArgumentError | OpError):
        return error
    if isinstance(error, ours.AsyncRecError | anyio.ClosedResourceError):
        named = _BY_ERRNO.get(getattr(error, "errno", None))
        if named is None:
            named = next((theirs for kind, theirs in _BY_KIND if isinstance(error, kind)), UnknownError)
        error.__class__ = _both(type(error), named, getattr(sys.modules.get("tensorflow"), "errors", None))
    return error


@contextmanager
def told_as_tensorflow() -> Iterator[None]:
    """Turn errors that asyncrec raises within the block into instances of the matching TensorFlow classes as well."""
    try:
        yield
    except Exception as error:
        as_tensorflow(error)
        raise


def _restored(error: Exception, number: int | None) -> Exception:
    if isinstance(error, OSError):
        error.errno = number
    return as_tensorflow(error)


_made: dict[tuple[type, ...], Any] = {}  # bounded by the number of error classes


def _both(kind: type[Exception], named: type[OpError], real: Any) -> Any:
    """Return a subclass of ``named``, ``kind`` and, if ``real`` has one, TensorFlow's class of the same name."""
    theirs = getattr(real, named.__name__, None)
    bases: tuple[type, ...] = (named, kind) if theirs is None else (named, kind, theirs)
    if bases in _made:
        return _made[bases]

    def reduce(self: Exception) -> tuple[Any, ...]:  # pickle cannot find this class by its name
        plain = kind.__new__(kind, *self.args)
        plain.__dict__.update(self.__dict__)
        return _restored, (plain, getattr(self, "errno", None))

    own = {"__module__": __name__, "__doc__": kind.__doc__, "__str__": kind.__str__, "__reduce__": reduce}
    _made[bases] = type(named.__name__, bases, own)
    return _made[bases]
