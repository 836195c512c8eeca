"""What a checkpoint says is checked as what a segment says is: it may be anybody's."""

from __future__ import annotations

from operator import le
from typing import TYPE_CHECKING, Any

from asyncrec._numpy import np
from asyncrec._shards.manifest.history import ABANDONED, CLOSED, History
from asyncrec._shards.manifest.segment import is_too_many
from asyncrec._shards.manifest.shard_columns import BY_WRITER, COMPRESSIONS, PLAIN_WRITER, micros_of
from asyncrec.errors import ManifestError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FIRST = micros_of("0001-01-01T00:00:00.000000Z")
_LAST = micros_of("9999-12-31T23:59:59.999999Z")
_SLASH, _BACKSLASH, _DOT, _COLON = b"/\\.:"


def check_paths(content: bytes, rows: int, name: str) -> None:
    """Check what `names.check_relative` checks, of many paths at once: each with a NUL behind it.

    Raises:
        ManifestError: there are more or fewer, or one of them could lead out of the folder.
    """
    if not rows and not content:
        return
    letters = np.frombuffer(content, np.uint8)
    ends = letters == 0
    if int(ends.sum()) != rows or not content.endswith(b"\0"):
        raise ManifestError(f"{name}: a block does not have its {rows:,} paths; it is damaged")
    # A part is what is between two of these; before the first path there is one, too.
    bounds = np.concatenate([[True], ends | (letters == _SLASH) | (letters == _BACKSLASH)])
    dots = np.concatenate([[False], letters == _DOT])
    after_end = np.concatenate([[True], ends])  # where a path begins
    bad = (
        (bounds[:-1] & bounds[1:]).any()
        or (bounds[:-2] & dots[1:-1] & bounds[2:]).any()
        or (bounds[:-3] & dots[1:-2] & dots[2:-1] & bounds[3:]).any()
        or (after_end[:-2] & (letters[1:] == _COLON)).any()
    )
    try:
        content.decode()
    except UnicodeDecodeError as error:
        raise ManifestError(f"{name}: names a path that is not UTF-8; it is damaged") from error
    if bad:
        raise ManifestError(f"{name}: names a path that is not relative, or leads out of its folder")


def check_sorted(content: bytes, last: bytes, name: str) -> bytes:
    """Check that paths ascend, from ``last`` on; returns the last of them.

    Raises:
        ManifestError: they do not.
    """
    paths = [last, *content.split(b"\0")[:-1]]
    if not all(map(le, paths, paths[1:])):
        raise ManifestError(f"{name}: its paths are not in their order; it is damaged")
    return paths[-1]


def check_commits(history: History, name: str) -> None:
    """Check that commits name what there is.

    Raises:
        ManifestError: they do not.
    """
    commits, values = history.commits, len(history.values)
    _within(commits["writer"], 0, len(history.writers), name)
    _within(commits["time"], _FIRST, _LAST + 1, name)
    for column in ("schema", "metadata", "extra"):
        _within(commits[column], -1, values, name)
    _within(commits["removal"], -1, (1 << 63) - 1, name)
    _within(commits["flags"], 0, (CLOSED | ABANDONED) + 1, name)
    _within(history.removed_by, 0, len(commits["time"]), name)


def check_shards(history: History, name: str) -> None:
    """Check that shards name what there is, and count as shards do.

    Raises:
        ManifestError: they do not.
    """
    numbers = history.shards.numbers
    for column in ("records", "bytes", "index_bytes", "keys_bytes"):
        _within(numbers[column], 0, (1 << 63) - 1, name)
    compressed = numbers["flags"] & 3 != 0
    for rows, kind in ((compressed, True), (~compressed, False)):
        if is_too_many(numbers["records"][rows], numbers["bytes"][rows], compressed=kind).any():
            raise ManifestError(f"{name}: it counts more records than there are bytes for; it is damaged")
    for column in ("first", "last", "committed"):
        _within(numbers[column], _FIRST, _LAST + 1, name)
    for column in ("index", "keys"):
        _within(numbers[column], BY_WRITER, len(history.shards.names), name)
    _within(numbers["extra"], -1, len(history.values), name)
    _within(numbers["commit"], 0, len(history.commits["time"]), name)
    _within(numbers["flags"] & 3, 0, len(COMPRESSIONS), name)
    _within(numbers["live"].view(np.uint8), 0, 2, name)
    named_by = np.unique(numbers["commit"][(numbers["index"] == BY_WRITER) | (numbers["keys"] == BY_WRITER)])
    for writer in np.unique(history.commits["writer"][named_by]).tolist():
        if not PLAIN_WRITER.fullmatch(history.writers[writer]):
            raise ManifestError(f"{name}: names an index by a writer whose id cannot be part of a name")


def _within(column: NDArray[Any], low: int, high: int, name: str) -> None:
    if len(column) and not low <= int(column.min()) <= int(column.max()) < high:
        raise ManifestError(f"{name}: a number in it is out of its range; it is damaged")
