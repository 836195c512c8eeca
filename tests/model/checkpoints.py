"""Whoever makes a checkpoint, and deletes what it covers.

The problem: M deletes the entries that its checkpoint covers, and a reader, a writer or another maker holds an older
list. The naive way is to delete what one has covered oneself, at once. But M may have lost the number to N, whose
checkpoint covers less; so deleting is separate, and goes by the newest checkpoint in a list, whosever it is, once it
is old enough.
"""

from __future__ import annotations

from . import questions
from .look import look_at
from .objects import Checkpoint, Data, Name, Pointer
from .readers import gather
from .rules import on
from .store import Ask, Become, Delete
from .winning import LOST, WON, Part, create, delete, upload


def maker(me: str, how: str = "", pointer: bool = False) -> Part:
    """Makes a checkpoint from one moment, or from a torn list: ``name`` or ``number`` says how it is cut."""
    if how:
        parts = yield from gather(how)
        if parts is None:
            return "not whole"
        look = look_at(*parts)
        number, content = look.number + 1, look.make_checkpoint()
    else:
        found = yield Ask(questions.next_checkpoint)
        if found is None:
            return "not whole"
        number, content = found
    if pointer:
        yield Become(_with_pointer, (me, number, content))
    yield from create(Name("checkpoint", number=number), content)
    yield Become(deleter, (me,))
    return ""


def deleter(me: str) -> Part:
    for name in (yield Ask(questions.covered, decides=True)):
        yield Delete(name, covered=True)
    return "deleted"


def _with_pointer(me: str, number: int, content: Checkpoint) -> Part:
    """The columns first, then the checkpoint that names them, then the pointer to it."""
    columns = Name("columns", number=number, token=me)
    if not on("pointer-behind-checkpoint"):
        yield from upload(Name("latest"), Pointer(number))
    if not (yield from upload(columns, Data(()))):
        return "unsettled"
    won = yield from create(Name("checkpoint", number=number), content._replace(columns=columns))
    if won == LOST:
        yield from delete((columns,))
    if won == WON and on("pointer-behind-checkpoint"):
        yield from upload(Name("latest"), Pointer(number))
    yield Become(deleter, (me,))
    return ""
