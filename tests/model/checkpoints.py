"""Actors that make a checkpoint and delete the objects that it covers.

The problem: M deletes the entries that its checkpoint covers, while a reader, a writer or another maker still uses an
older listing. The naive solution is that each maker immediately deletes what its own checkpoint covers. But M may have
lost the checkpoint's number to N, whose checkpoint covers less. Deletion is therefore a separate step, which follows
the newest checkpoint in a listing, no matter who made it, once that checkpoint is old enough.
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
    """Make a checkpoint from a consistent listing, or from a torn one, which ``how`` cuts by ``name`` or ``number``."""
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
    """Create the object with the columns, then the checkpoint that names it, then the pointer to the checkpoint."""
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
