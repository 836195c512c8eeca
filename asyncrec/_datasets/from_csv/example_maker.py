"""`make` turns the description of an example into its records, using the methods of the example's class.

For each example, `make` calls ``from_csv_row``, ``load``, ``to_csv_row`` and ``split``, and then ``encode`` and
``release`` for each part. All of them run in a single call in a worker thread. If a method returns an awaitable, it is
awaited in the event loop, and a worker thread then continues. Loading mostly waits for a disk, so several threads are
used to load some examples while others are encoded.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import anyio

from asyncrec._concurrency.tasks import in_thread
from asyncrec._datasets.from_csv.csv_rows import csv_line
from asyncrec.errors import ArgumentTypeError, DatasetError
from asyncrec.example._declared import DeclaredExample, IgnoreExample

_Steps = Generator[Any, Any, "Made"]


class Origin(Protocol):
    """What an example is made from, such as a row of a CSV file."""

    def example(self, kwargs: Mapping[str, Any]) -> DeclaredExample | Awaitable[DeclaredExample]:
        """Return the example, which has not been loaded yet."""

    def row(self) -> list[str] | None:
        """Return the CSV row that describes the example, or `None` if the example was not made from a row."""

    def where(self) -> str:
        """Return the location of the example, for error messages."""

    def guess(self) -> str:
        """Return a sentence on the likely cause of an error in ``from_csv_row``, or an empty string."""


@dataclass(slots=True)
class Made:
    """The outcome for one example: its records and its line in ``examples.csv``, or the reason why it was skipped."""

    records: list[bytes] = field(default_factory=list)
    csv: str = ""
    ignored: str | None = None


async def make(
    origin: Origin,
    kind: type[DeclaredExample],
    kwargs: Mapping[str, Any],
    *,
    encoding: str,
    limiter: anyio.CapacityLimiter,
) -> Made:
    """Return the records of one example. A cancellation takes effect only once the running method has returned.

    Raises:
        DatasetError: a method raised an exception (the ``__cause__``). The message names the method and the example.
    """
    steps = _steps(origin, kind, kwargs, encoding)
    result: Any = None
    error: Exception | None = None
    while True:
        ended, value = await in_thread(_advance, steps, result, error, limiter=limiter)
        if ended:
            made: Made = value
            return made
        result = error = None
        try:
            result = await value
        except Exception as failure:
            error = failure


def _advance(steps: _Steps, result: Any, error: Exception | None) -> tuple[bool, Any]:
    try:
        return False, steps.send(result) if error is None else steps.throw(error)
    except StopIteration as stop:
        return True, stop.value


def _steps(origin: Origin, kind: type[DeclaredExample], kwargs: Mapping[str, Any], encoding: str) -> _Steps:
    """Process an example. Each awaitable is yielded to the caller, which awaits it and sends back its result."""
    made = Made()
    doing = "from_csv_row"
    try:
        example = yield from _settled(origin.example(kwargs))
        _check(example, kind)
        doing = "load"
        yield from _settled(example.load(**kwargs))
        doing = "to_csv_row"
        row = origin.row()
        # If the class has no to_csv_row of its own, write the row from which the example was made.
        if row is None or kind.to_csv_row is not DeclaredExample.to_csv_row:
            row = yield from _settled(example.to_csv_row())
        made.csv = csv_line(row)
        made.csv.encode(encoding)  # an error raised here gets a message that names the example
        doing = "split"
        parts = yield from _settled(example.split(**kwargs))
        used: list[DeclaredExample] = []
        for part in parts:
            _check(part, kind)
            doing = "encode"
            made.records.append(part.encode())
            if part is example or isinstance(parts, list | tuple):
                used.append(part)  # a later part may need this part, or be the same object
            else:
                doing = "release"
                yield from _settled(part.release())
            doing = "split"
        doing = "release"
        for each in {id(each): each for each in (*used, example)}.values():
            yield from _settled(each.release())
    except IgnoreExample as reason:
        return Made(ignored=str(reason) or type(reason).__name__)
    except Exception as error:
        guess = origin.guess() if doing == "from_csv_row" else ""
        raise DatasetError(
            f"{origin.where()}: {kind.__name__}.{doing}: {type(error).__name__}: {error}" + (guess and f". {guess}")
        ) from error
    return made if made.records else Made(ignored="split() returned no example")


def _settled(value: Any) -> Generator[Any, Any, Any]:
    if inspect.isawaitable(value):
        value = yield value
    return value


def _check(example: object, kind: type[DeclaredExample]) -> None:
    if type(example) is kind:
        return
    if not isinstance(example, DeclaredExample) or example.fields() != kind.fields():
        raise ArgumentTypeError(
            f"the method returned a {type(example).__name__}, which does not have the fields of {kind.__name__}"
        )
