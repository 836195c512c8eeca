"""Winning a number: the only way to create an object that decides something.

The problem: A sends an entry and gets no answer. The request may have taken effect, may do so later, or never. The
naive solution is to check: if the name is free, A uses it for something else. But before A checks, the first request
may have taken effect, been merged into a checkpoint, and been deleted. Then A creates the same name again with
different content, which no process reads. A therefore sends the same bytes until it gets an answer, and examines the
entire log if the name is taken.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final, TypeAlias

from .objects import Add, Content, Data, Name
from .rules import on
from .store import Delete, Get, Put, Request

Part: TypeAlias = Generator[Request, Any, Any]

WON: Final = "won"
LOST: Final = "lost"
UNSETTLED: Final = "unsettled"
ABSENT: Final = "absent"

# How often a request is sent before its sender gives up waiting for an answer.
ATTEMPTS = 2


def create(name: Name, content: Content) -> Part:
    """Return `WON`, `LOST` if the number is taken, or `UNSETTLED` if no answer came; `ABSENT` only without the rule."""
    for _ in range(ATTEMPTS):
        answer = yield Put(name, content)
        if answer == "ok":
            return WON
        if answer == "exists":
            found = yield Get(name)
            return WON if found == content else LOST
        if not on("same-bytes"):
            found = yield Get(name)
            if found == content:
                return WON
            return ABSENT if found is None else LOST
    return UNSETTLED


def upload(name: Name, content: Content) -> Part:
    """Store an object that only this process makes, and retry without an answer. Return whether it is stored."""
    for _ in range(ATTEMPTS):
        answer = yield Put(name, content, exclusive=False)
        if answer == "ok":
            return True
    return False


def publish(add: Add) -> Part:
    """Store a shard, its sidecar first. Return whether both are stored."""
    order = add.objects()[::-1] if on("sidecar-first") else add.objects()
    for name in order:
        if not (yield from upload(name, Data(add.records))):
            return False
    return True


def delete(names: tuple[Name, ...]) -> Part:
    for name in names:
        yield Delete(name)
