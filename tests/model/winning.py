"""To win a number: the one way in which a process creates an object that decides.

The problem: A sends an entry and hears nothing. Did it take effect, will it, or never? The naive way is to look: if
the name is empty, A tries something else under it. But the first request may take effect, be merged into a checkpoint
and be deleted, all before A looks: then A creates the name a second time, with other content, and what it adds is
read by no process. So A sends the same bytes until there is an answer, and asks the whole log if the name is taken.
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

# How often a request is sent, at most, before its sender has had enough of no answers.
ATTEMPTS = 2


def create(name: Name, content: Content) -> Part:
    """`WON`, `LOST` if something else has the number, `UNSETTLED` if no answer came. `ABSENT` only without the rule."""
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
    """Whether it is there: an object that one process alone makes. What has no answer is sent again."""
    for _ in range(ATTEMPTS):
        answer = yield Put(name, content, exclusive=False)
        if answer == "ok":
            return True
    return False


def publish(add: Add) -> Part:
    """Whether the shard is there, and its sidecar before it."""
    order = add.objects()[::-1] if on("sidecar-first") else add.objects()
    for name in order:
        if not (yield from upload(name, Data(add.records))):
            return False
    return True


def delete(names: tuple[Name, ...]) -> Part:
    for name in names:
        yield Delete(name)
