"""Progress: the position up to which each source has been stored, in segments, checkpoints and histories.

A *source* is a stream that a consumer reads, such as ``topic/3``. Its *position* is the number of the last message that
was stored. Each position is kept with the turn of the source in which it was committed, because only the writer with
the last turn may continue. The state of a source is its highest turn, with the highest position in that turn. The
position -1 means that the source was forgotten.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from asyncrec.errors import ManifestError

# A turn, and the last position committed in it.
Reached = tuple[int, int]
# A value that is kept for each source: a turn and a position, or a released turn. The highest value counts.
Level = TypeVar("Level", int, Reached)

# The maximum number of sources in a data set. If their names are short, all of them together take 2.4 MB in a segment
# and 0.5 MB in a checkpoint.
MOST_SOURCES = 100_000
MOST_SOURCE_BYTES = 512
MOST_POSITION = (1 << 63) - 1
NO_POSITION = -1

_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f]")


def is_source(value: object) -> bool:
    """Return whether a value is a valid source name: 1 to 512 bytes of UTF-8, without control characters."""
    if not isinstance(value, str) or not value or len(value) > MOST_SOURCE_BYTES or _CONTROLS.search(value):
        return False
    try:
        return len(value.encode()) <= MOST_SOURCE_BYTES
    except UnicodeEncodeError:
        return False


def is_turn(value: object) -> bool:
    """Return whether a value is a valid turn number."""
    return type(value) is int and 1 <= value <= MOST_POSITION


def is_reached(value: object) -> bool:
    """Return whether a JSON value is a valid pair of a turn and a position."""
    if not isinstance(value, list) or len(value) != 2 or not is_turn(value[0]):
        return False
    return type(value[1]) is int and NO_POSITION <= value[1] <= MOST_POSITION


def progress_from_json(data: Mapping[str, Any], name: str) -> dict[str, Reached]:
    """Parse ``{source: [turn, position]}``. ``name`` is used in error messages.

    Raises:
        ManifestError: there are too many sources, or a source name or a value is invalid.
    """
    _check_sources(data, "progress", name)
    for source, value in data.items():
        if not is_reached(value):
            raise ManifestError(
                f"{name}: the progress of {source[:80]!r} is {str(value)[:40]!r}; it must be a turn of at least 1 and "
                "a position of at least -1, both below 2**63"
            )
    return {source: (value[0], value[1]) for source, value in data.items()}


def releases_from_json(data: Mapping[str, Any], name: str) -> dict[str, int]:
    """Parse ``{source: turn}``. ``name`` is used in error messages.

    Raises:
        ManifestError: as for `progress_from_json`.
    """
    _check_sources(data, "releases", name)
    for source, turn in data.items():
        if not is_turn(turn):
            raise ManifestError(
                f"{name}: the release of {source[:80]!r} is {str(turn)[:40]!r}; it must be a turn from 1 to 2**63 - 1"
            )
    return dict(data)


def members_of(progress: Mapping[str, Reached], releases: Mapping[str, int]) -> dict[str, Any]:
    """Return progress and releases as members of a JSON object, leaving out a member if it is empty."""
    members: dict[str, Any] = {}
    if progress:
        members["progress"] = {source: list(reached) for source, reached in progress.items()}
    if releases:
        members["releases"] = dict(releases)
    return members


def newer(known: Mapping[str, Level], more: Mapping[str, Level]) -> dict[str, Level]:
    """Return the items of ``more`` whose sources have no value or a lower value in ``known``."""
    return {source: value for source, value in more.items() if source not in known or value > known[source]}


def progress_columns(progress: Mapping[str, Reached], releases: Mapping[str, int]) -> dict[str, list[Any]]:
    """Return progress and releases as columns of a checkpoint, with a row for each source, sorted by name."""
    sources = sorted(progress.keys() | releases.keys())
    reached = [progress.get(source, (0, NO_POSITION)) for source in sources]
    return {
        "source": sources,
        "turn": [turn for turn, _ in reached],
        "position": [position for _, position in reached],
        "released": [releases.get(source, 0) for source in sources],
    }


def progress_of(columns: Sequence[Sequence[Any]]) -> tuple[dict[str, Reached], dict[str, int]]:
    """Convert columns back to progress and releases. The columns must be in the order of `progress_columns`."""
    sources, turns, positions, released = columns
    progress = {source: (turn, at) for source, turn, at in zip(sources, turns, positions, strict=True) if turn}
    return progress, {source: turn for source, turn in zip(sources, released, strict=True) if turn}


def positions(progress: Mapping[str, Reached]) -> dict[str, int]:
    """Return the position of each source that has one, sorted by name."""
    return {source: position for source, (_, position) in sorted(progress.items()) if position != NO_POSITION}


def _check_sources(data: Mapping[str, Any], member: str, name: str) -> None:
    if len(data) > MOST_SOURCES:
        raise ManifestError(
            f"{name}: the member {member!r} has {len(data):,} sources; a data set has at most {MOST_SOURCES:,}"
        )
    for source in data:
        if not is_source(source):
            raise ManifestError(
                f"{name}: the member {member!r} names the source {source[:80]!r}; a name has 1 to "
                f"{MOST_SOURCE_BYTES} bytes of UTF-8, without control characters"
            )
