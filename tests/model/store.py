"""Requests to a store or a local folder, and their effects. Each request is one atomic step.

A store answers a request at once, late or never; `model.engine` decides which. In a local folder, no answer is late,
but a power cut undoes what was not synced. A folder's names and the contents of files are synced separately.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any, Final, NamedTuple, TypeAlias

from .objects import DISK, Content, Name, Store, Torn, Unsynced

UNKNOWN: Final = "no answer"


class Get(NamedTuple):
    name: Name


class Put(NamedTuple):
    """Create or replace an object. The answer is ``ok``, or ``exists`` if ``exclusive`` and the name is taken."""

    name: Name
    content: Content
    exclusive: bool = True


class Link(NamedTuple):
    """`Put` in a folder: the name exists at once, and becomes durable with the next `Sync` of its folder."""

    name: Name
    content: Content
    content_is_synced: bool


class Delete(NamedTuple):
    """Delete an object. ``covered`` is true if a checkpoint has made it redundant."""

    name: Name
    covered: bool = False


class Unlink(NamedTuple):
    """`Delete` in a folder."""

    name: Name


class Sync(NamedTuple):
    """Make the names in a folder (``entries`` or ``shards``) durable, whichever process changed them."""

    folder: str


class Cut(NamedTuple):
    """A power cut that leaves the disk in one of its possible states."""

    which: int


class Ask(NamedTuple):
    """List and read objects: ``question`` is a pure function of the store at one moment.

    ``decides`` is true if an outdated listing would mislead the process, which then waits until a listing can no longer
    be outdated.
    """

    question: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    decides: bool = False


class Choice(NamedTuple):
    """Choose any number below ``below``, to decide which of several things a process does."""

    below: int


class Recall(NamedTuple):
    """Return what must and what must not be found now. Judged readers use this; no real process could."""


class Tell(NamedTuple):
    """Report something to a caller. This is not a separate step, but part of the one before."""

    what: str
    values: tuple[str, ...]


class Become(NamedTuple):
    """Continue as a different function, and forget all answers so far. This is not a separate step."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]


Request: TypeAlias = Get | Put | Link | Delete | Unlink | Sync | Cut | Ask | Choice | Recall | Tell | Become
Change: TypeAlias = Put | Link | Delete | Unlink | Sync | Cut


def folder_of(name: Name) -> str:
    return "shards" if name.kind in ("shard", "sidecar") else "entries"


def change(store: Store, request: Change) -> tuple[Store, str]:
    """Return the store after a request (the same object if nothing changed) and the answer."""
    if isinstance(request, Put):
        if request.name in store and (request.exclusive or store[request.name] == request.content):
            return store, "exists" if request.exclusive else "ok"
        return {**store, request.name: request.content}, "ok"
    if isinstance(request, Delete):
        return ({name: store[name] for name in store if name != request.name} if request.name in store else store), "ok"
    if isinstance(request, Link):
        if request.name in store:
            return store, "exists"
        noted = _note(store, request.name, () if request.content_is_synced else (request.name,))
        return {**noted, request.name: request.content}, "ok"
    if isinstance(request, Unlink):
        if request.name not in store:
            return store, "ok"
        noted = _note(store, request.name, ())
        return {name: noted[name] for name in noted if name != request.name}, "ok"
    if isinstance(request, Sync):
        return _sync(store, request.folder), "ok"
    left = list(after_a_power_cut(store))
    return left[request.which % len(left)], "ok"


def _unsynced(store: Store) -> Unsynced:
    found = store.get(DISK, Unsynced())
    assert isinstance(found, Unsynced)
    return found


def _note(store: Store, name: Name, torn: tuple[Name, ...]) -> Store:
    disk = _unsynced(store)
    before = dict(disk.before)
    before.setdefault(name, store.get(name))
    return {**store, DISK: Unsynced(tuple(sorted(before.items(), key=repr)), tuple(sorted({*disk.torn, *torn})))}


def _sync(store: Store, folder: str) -> Store:
    disk = _unsynced(store)
    left = tuple(each for each in disk.before if folder_of(each[0]) != folder)
    rest = {name: store[name] for name in store if name != DISK}
    return {**rest, DISK: Unsynced(left, disk.torn)} if left or disk.torn else rest


def after_a_power_cut(store: Store) -> Iterator[Store]:
    """Yield each possible state of the disk: each unsynced change is either there or not."""
    disk = _unsynced(store)
    rest = {name: Torn(name) if name in disk.torn else store[name] for name in store if name != DISK}
    for count in range(len(disk.before) + 1):
        for taken_back in combinations(disk.before, count):
            left = {**rest, **{name: content for name, content in taken_back if content is not None}}
            yield {name: left[name] for name in left if (name, None) not in taken_back}
