"""What an exploration is made of: numbered things, processes, configurations and results; and how steps are printed."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from .judge import NOTHING_TOLD, Also, Told, nothing_more
from .objects import Content, Name, Store
from .store import Delete, Put, Request

T = TypeVar("T")
Steps: TypeAlias = Generator[Request, Any, str]
State: TypeAlias = tuple[int, ...]  # store, store before the last change, in flight, told, answers to lose, processes


class Numbered(Generic[T]):
    """Gives equal things equal numbers."""

    def __init__(self) -> None:
        self._numbers: dict[T, int] = {}
        self.things: list[T] = []

    def __call__(self, thing: T) -> int:
        number = self._numbers.setdefault(thing, len(self.things))
        if number == len(self.things):
            self.things.append(thing)
        return number


class Process(NamedTuple):
    """``request`` is what it does next; it is None if the process has ended, and ``ended_as`` says how."""

    function: Callable[..., Steps] | None
    arguments: tuple[Any, ...]
    answers: tuple[Any, ...]
    request: Request | None
    ended_as: str = ""


@dataclass(frozen=True)
class Actor:
    name: str
    function: Callable[..., Steps]
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Configuration:
    """A store, the processes that meet in it, and what may go wrong.

    ``late`` answers may be lost, of requests of the actors ``late_for`` (all) and of the kinds ``late_kinds``.
    ``old_lists``: a list may show the names of before the last change. ``allowed`` says of a request whether it can be
    made now, which stands for time that passes. ``twins`` are the names of two actors that differ by nothing else.
    ``after`` gives everything that may be found where a store was, as after a power cut: all of it is judged.
    """

    name: str
    title: str
    actors: tuple[Actor, ...]
    late: int = 0
    late_for: tuple[str, ...] = ()
    late_kinds: tuple[type[Any], ...] = (Put, Delete)
    old_lists: bool = False
    store: tuple[tuple[Name, Content], ...] = ()
    told: Told = NOTHING_TOLD
    also: Also = nothing_more
    allowed: Callable[[str, Request, Store, dict[str, Process]], bool] | None = None
    twins: tuple[str, str] | None = None
    after: Callable[[Store], Iterator[Store]] | None = None


@dataclass
class Result:
    """``wrong`` says what broke, and ``trace`` how; ``whole`` if every state was reached."""

    name: str
    states: int = 0
    steps: int = 0
    seconds: float = 0.0
    wrong: str = ""
    whole: bool = False
    trace: list[str] = field(default_factory=list)
    outcomes: dict[str, set[str]] = field(default_factory=dict)


def renamed(thing: Any, names: dict[str, str]) -> Any:
    """A mirror image: the same thing with names exchanged, and tokens such as ``A1`` of attempts."""
    if isinstance(thing, str):
        head = thing.rstrip("0123456789")
        return names.get(head, head) + thing[len(head) :]
    if isinstance(thing, frozenset):
        return frozenset(renamed(each, names) for each in thing)
    if isinstance(thing, tuple):
        parts = [renamed(each, names) for each in thing]
        return type(thing)(*parts) if hasattr(thing, "_fields") else tuple(parts)
    return thing


def described(thing: Any) -> str:
    """For a trace: without what is empty."""
    if isinstance(thing, Name):
        return str(thing)
    if isinstance(thing, tuple):
        head = type(thing).__name__.lower() if hasattr(thing, "_fields") else ""
        return f"{head}({', '.join(described(each) for each in thing if each not in ((), '', None, 0, False))})"
    return getattr(thing, "__name__", str(thing))
