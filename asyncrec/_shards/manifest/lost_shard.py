"""`naming_lost_shards` says of a shard that a manifest lists and that is not there what it is, and what may be done."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from asyncrec.errors import ObjectNotFoundError

PUT_BACK = "'asyncrec copy' from a copy of the data set puts it back"


def _told(error: ObjectNotFoundError) -> ObjectNotFoundError:
    """Make the error for a shard that was not found, though the data set lists it."""
    told = ObjectNotFoundError(
        f"{error}; the manifest lists this shard, and it is not there: it was deleted, or the data set was replaced "
        f"since it was opened; 'asyncrec verify' names all that is missing, and {PUT_BACK}"
    )
    told.errno = error.errno
    return told


@contextmanager
def naming_lost_shards() -> Iterator[None]:
    """Tell so, of a shard that is not found within this context.

    Raises:
        ObjectNotFoundError: it is not there.
    """
    try:
        yield
    except ObjectNotFoundError as error:
        raise _told(error) from error
