"""Every stream's state is put into an envelope here: version, kind, and what it was taken of. All of it is JSON.

There are two. A stream over shards (`enveloped`, `checked`) says the shards' names in their order, and from version 2
on also which version of them it stands in (`asyncrec._sampling.shard_version`). A stream over numbered
records (`ordered_state`, `check_ordered`) says what its order depends on, the id of the snapshot among it, and stands
at a number of that order; of shards that no manifest lists it says the versions, too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from asyncrec.errors import ArgumentTypeError, ArgumentValueError

__all__ = ["check_ordered", "checked", "enveloped", "fingerprint", "ordered_state"]

VERSION = 2
# Of these a state is read. 1 says nothing of the shards but their names.
_READ = (1, 2)
# Of a stream over numbered records.
_ORDERED = 1
# What there is to do where the snapshot is another one.
_OTHER_SNAPSHOT = (
    "; if that is an earlier snapshot of this data set, and not another data set, read_manifest(path, at=<that id>) "
    "opens it"
)
_OTHER_FILES = (
    "; no manifest lists these files, which are told apart by their names, sizes and numbers of records: bring those "
    "of then back, or begin anew without the state"
)
# Parameters whose argument has another name than they have in a state, which stays what it was.
_ARGUMENTS = {"shard": "worker"}


def fingerprint(names: Iterable[str]) -> str:
    """Of a list of shards: 16 bytes of blake2b, in hexadecimal."""
    return blake2b(json.dumps(list(names)).encode(), digest_size=16).hexdigest()


def enveloped(kind: str, inputs: str, parameters: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
    """The state of a stream over shards, whose names `fingerprint` put into ``inputs``."""
    return {"version": VERSION, "kind": kind, "inputs": inputs, "parameters": dict(parameters), **state}


def checked(
    state: Mapping[str, Any],
    kind: str,
    inputs: str,
    parameters: Mapping[str, Any],
    *,
    difference: Callable[[Sequence[Sequence[Any]]], str] | None = None,
) -> Mapping[str, Any]:
    """The state itself. ``difference`` says where the shards differ from those of whose versions the state tells.

    Raises:
        ValueError: it is of another version, another kind of stream, other shards or other parameters; says which.
        TypeError: it is no mapping.
    """
    _check_mapping(state)
    if state.get("version") not in _READ or state.get("kind") != kind:
        raise ArgumentValueError(
            f"a state of {state.get('kind')!r}, version {state.get('version')!r}; this is {kind!r}, and reads the "
            f"versions {_READ[0]} to {_READ[-1]}: take a state of a later version to the asyncrec that made it"
        )
    theirs = state.get("parameters") or {}
    different = [
        f"{_ARGUMENTS.get(name, name)}={theirs.get(name)!r} there, {mine!r} here"
        for name, mine in parameters.items()
        if theirs.get(name) != mine
    ]
    if different:
        raise ArgumentValueError(f"the state was taken with other parameters: {'; '.join(different)}")
    if state.get("inputs") != inputs:
        raise ArgumentValueError(
            "the state was taken over other shards: their names or their order have changed"
            + (difference(state["versions"]) if difference is not None and state.get("versions") else "")
        )
    return state


def ordered_state(
    kind: str, identity: Mapping[str, Any], versions: Sequence[Sequence[Any]], **place: int
) -> dict[str, Any]:
    """The state of a stream over numbered records: what its order depends on, and the numbers where it stands.

    ``versions`` are those of the shards that no manifest lists; there may be none.
    """
    state = {"version": _ORDERED, "kind": kind, **identity, **place}
    return {**state, "versions": [list(version) for version in versions]} if versions else state


def check_ordered(state: Mapping[str, Any], kind: str, identity: Mapping[str, Any], *, listed: bool) -> None:
    """Refuse the state of another order. ``listed``: a manifest says what the data set is.

    Raises:
        ValueError: it is of another version, another kind of stream, or another order; says which.
        TypeError: it is no mapping.
    """
    _check_mapping(state)
    if state.get("version") != _ORDERED or state.get("kind") != kind:
        raise ArgumentValueError(
            f"a state of kind {state.get('kind')!r}, version {state.get('version')!r}; "
            f"this is {kind!r}, version {_ORDERED}"
        )
    for name, value in identity.items():
        if state.get(name) != value:
            remedy = (_OTHER_SNAPSHOT if listed else _OTHER_FILES) if name == "snapshot" else ""
            raise ArgumentValueError(
                f"the state was made with {name}={state.get(name)!r}, and this stream has {value!r}: it would go on in "
                f"another order{remedy}"
            )


def _check_mapping(state: Any) -> None:
    if not isinstance(state, Mapping):
        raise ArgumentTypeError(f"a state is the dict that state_dict gave, not {state!r:.80}")
