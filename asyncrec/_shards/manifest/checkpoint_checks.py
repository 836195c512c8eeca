"""Check a checkpoint as strictly as a segment, because another user may have written it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import lt
from typing import TYPE_CHECKING, Any

from asyncrec._numpy import np
from asyncrec._shards.manifest.history import ABANDONED, CLOSED, History
from asyncrec._shards.manifest.progress import MOST_POSITION, NO_POSITION, is_source
from asyncrec._shards.manifest.segment import is_too_many
from asyncrec._shards.manifest.shard_columns import BY_WRITER, COMPRESSIONS, PLAIN_WRITER, micros_of
from asyncrec.errors import ManifestError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_TIME = micros_of("0001-01-01T00:00:00.000000Z"), micros_of("9999-12-31T23:59:59.999999Z")
_MOST = (1 << 63) - 2
_SLASH, _BACKSLASH, _DOT, _COLON = b"/\\.:"


def limits(kind: str, rows: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Return the least and the greatest number of each column whose type holds more. ``rows`` are counts by kind."""
    counts = dict.fromkeys(("first", "last", "records", "bytes", "index_bytes", "keys_bytes"), (0, _MOST))
    values, commits = (-1, rows.get("values", 0) - 1), (0, rows.get("commits", 0) - 1)
    match kind:
        case "commits":
            return {
                "writer": (0, rows.get("writers", 0) - 1),
                "time": _TIME,
                **dict.fromkeys(("schema", "metadata", "extra"), values),
                "removal": (-1, _MOST),
                "flags": (0, CLOSED | ABANDONED),
            }
        case "shards":
            names = (BY_WRITER, rows.get("names", 0) - 1)
            times = dict.fromkeys(("first", "last", "committed"), _TIME)
            return {**counts, **times, "index": names, "keys": names, "extra": values, "commit": commits}
        case "progress":
            turns = (0, MOST_POSITION)
            return {"turn": turns, "position": (NO_POSITION, MOST_POSITION), "released": turns}
    return {**counts, "commit": commits}


def check_paths(content: bytes, rows: int, where: str) -> None:
    """Check many paths at once, as `names.check_relative` checks one path. Each is followed by a NUL.

    Raises:
        ManifestError: a path contains a NUL, or could lead out of the folder.
    """
    letters = np.frombuffer(content, np.uint8)
    ends = letters == 0
    if int(ends.sum()) != rows:
        raise ManifestError(f"{where}: names a path with a NUL in it; it is damaged")
    # A part of a path is between two of these bounds. There is one before the first path, too.
    bounds = np.concatenate([[True], ends | (letters == _SLASH) | (letters == _BACKSLASH)])
    dots = np.concatenate([[False], letters == _DOT])
    after_end = np.concatenate([[True], ends])  # the places at which a path begins
    if (
        (bounds[:-1] & bounds[1:]).any()
        or (bounds[:-2] & dots[1:-1] & bounds[2:]).any()
        or (bounds[:-3] & dots[1:-2] & dots[2:-1] & bounds[3:]).any()
        or (after_end[:-2] & (letters[1:] == _COLON)).any()
    ):
        raise ManifestError(f"{where}: names a path that is not relative, or leads out of its folder")


def check_shards(numbers: Mapping[str, NDArray[Any]], where: str) -> None:
    """Check that the numbers of shards are plausible.

    Raises:
        ManifestError: they are not plausible.
    """
    compressed = numbers["flags"] & 3 != 0
    for rows, kind in ((compressed, True), (~compressed, False)):
        if is_too_many(numbers["records"][rows], numbers["bytes"][rows], compressed=kind).any():
            raise ManifestError(f"{where}: it counts more records than there are bytes for; it is damaged")
    if (numbers["flags"] & 3 >= len(COMPRESSIONS)).any():
        raise ManifestError(f"{where}: a number in it is out of its range; it is damaged")


def check_sources(sources: Sequence[str], where: str) -> None:
    """Check that the names of sources are valid, unique and in ascending order.

    Raises:
        ManifestError: they are not.
    """
    if not all(map(is_source, sources)) or not all(map(lt, sources, sources[1:])):
        raise ManifestError(f"{where}: a source has a name that none may have, or is not in its place; it is damaged")


def check_names_by_writer(history: History, name: str) -> None:
    """Check that the ids of writers that are part of the names of indexes and keys can be part of a name.

    Raises:
        ManifestError: an id cannot.
    """
    numbers = history.shards.numbers
    named_by = np.unique(numbers["commit"][(numbers["index"] == BY_WRITER) | (numbers["keys"] == BY_WRITER)])
    for writer in np.unique(history.commits["writer"][named_by]).tolist():
        if not PLAIN_WRITER.fullmatch(history.writers[writer]):
            raise ManifestError(f"{name}: names an index by a writer whose id cannot be part of a name")
