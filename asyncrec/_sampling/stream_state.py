"""Wrap the state of a stream in an envelope that contains a version, and the kind and identity of the stream, as JSON.

There are two kinds of envelope. The envelope of a stream over shards (`enveloped`, `checked`) identifies the shards by
their names in order, and contains their versions (`asyncrec._sampling.shard_versions`) and every parameter that
determines the remaining records. The envelope of a stream over numbered records (`ordered_state`, `check_ordered`)
contains the values that determine the order of the records, such as the id of the snapshot, and a position in that
order. If no manifest lists the shards, it also contains their versions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from asyncrec._sampling.state_values import StateValues
from asyncrec.errors import ArgumentValueError

_VERSION = 1
# ``[shard, *packed_version]``: see `asyncrec._sampling.shard_versions`.
ShardVersion = Sequence[Any]
# The advice in the error for a state of a different snapshot.
_OTHER_SNAPSHOT = (
    "; if the state belongs to an earlier snapshot of this data set, open that snapshot with "
    "read_manifest(path, at=<its id>)"
)
_OTHER_FILES = (
    "; no manifest lists these files, so they are identified by their names, sizes and record counts: restore "
    "the earlier files, or start again without the state"
)
# Parameters whose argument was renamed. A state keeps the old name.
_ARGUMENTS = {"shard": "worker"}


def fingerprint(names: Iterable[str]) -> str:
    """Return a digest of shard names in the given order, as 16 bytes of blake2b in hexadecimal."""
    return blake2b(json.dumps(list(names)).encode(), digest_size=16).hexdigest()


def enveloped(kind: str, inputs: str, parameters: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the enveloped state of a stream over shards. ``inputs`` is the `fingerprint` of their names."""
    return {"version": _VERSION, "kind": kind, "inputs": inputs, "parameters": dict(parameters), **state}


def checked(
    state: Any,
    kind: str,
    inputs: str,
    parameters: Mapping[str, Any],
    *,
    difference: Callable[[Sequence[ShardVersion]], str] | None = None,
) -> StateValues:
    """Check an enveloped state, and return its values.

    ``difference`` returns, for the message, how the shards differ from the versions in the state.

    Raises:
        ValueError: the version, kind of stream, list of shards or parameters differ. The message names the difference.
        TypeError: the state is not a mapping.
    """
    values = StateValues(state)
    _check_kind(values, kind)
    theirs = values.part("parameters")
    different = [
        f"{_ARGUMENTS.get(name, name)}={theirs.plain(name)!r:.80} in the state, {mine!r} here"
        for name, mine in parameters.items()
        if theirs.plain(name) != mine
    ]
    if different:
        raise ArgumentValueError(f"the state was taken with different parameters: {'; '.join(different)}")
    if values.plain("inputs") != inputs:
        versions = versions_in(values)
        raise ArgumentValueError(
            "the state was taken with different shards: their names or their order have changed"
            + (difference(versions) if difference is not None and versions else "")
        )
    return values


def ordered_state(
    kind: str, identity: Mapping[str, Any], versions: Sequence[Sequence[Any]], **place: int
) -> dict[str, Any]:
    """Return the state of a stream over numbered records: the identity of its order, and its position in that order.

    ``versions`` contains the versions of the shards if no manifest lists them, and is otherwise empty.
    """
    state = {"version": _VERSION, "kind": kind, **identity, **place}
    return {**state, "versions": [list(version) for version in versions]} if versions else state


def check_ordered(state: StateValues, kind: str, identity: Mapping[str, Any], *, listed: bool) -> None:
    """Check that a state belongs to this order. ``listed`` says, for the message, whether a manifest lists the shards.

    Raises:
        ValueError: the version, kind of stream or order differs. The message names the difference.
    """
    _check_kind(state, kind)
    for name, value in identity.items():
        if state.plain(name) != value:
            remedy = (_OTHER_SNAPSHOT if listed else _OTHER_FILES) if name == "snapshot" else ""
            raise ArgumentValueError(
                f"the state was taken with {name}={state.plain(name)!r:.80}, but this stream has {value!r}, so the "
                f"order would differ{remedy}"
            )


def _check_kind(state: StateValues, kind: str) -> None:
    version = state.plain("version")
    if type(version) is not int or version != _VERSION or state.plain("kind") != kind:
        raise ArgumentValueError(
            f"the state has kind {state.plain('kind')!r:.80}, version {version!r:.80}, but {kind!r} reads only its "
            f"own states of version {_VERSION}; load the state into the kind of object that made it, with the release "
            "of asyncrec that made it"
        )


def versions_in(values: StateValues, shards: int | None = None) -> list[ShardVersion]:
    """Return the versions in a state, each as ``[shard, *packed]``, or ``[]`` if the state contains no versions.

    ``shards`` is the number of shards, or `None` to accept any shard number.

    Raises:
        ValueError: a value is not a version.
    """
    return (
        values.each("versions", lambda each: _is_one(each, shards), "versions of shards")
        if "versions" in values
        else []
    )


def _is_one(version: Any, shards: int | None) -> bool:
    if not isinstance(version, list | tuple) or len(version) != 5:
        return False
    shard, size, crc32c, etag, modified = version
    return (
        all(type(number) is int and number >= 0 for number in (shard, size, crc32c or 0))
        and (shards is None or shard < shards)
        and isinstance(etag, str)
        and isinstance(modified, str)
    )
