"""The data types of an exploration (numbered values, processes, configurations, results), and how steps are printed."""

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
    """Assign numbers to values, so that equal values have equal numbers."""

    def __init__(self) -> None:
        self._numbers: dict[T, int] = {}
        self.things: list[T] = []

    def __call__(self, thing: T) -> int:
        number = self._numbers.setdefault(thing, len(self.things))
        if number == len(self.things):
            self.things.append(thing)
        return number


class Process(NamedTuple):
    """A process. ``request`` is its next step, or `None` if it has ended; ``ended_as`` then says how."""

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
    """A store, the processes that share it, and the faults that may occur.

    Up to ``late`` answers may be lost, to requests of the actors ``late_for`` (if empty, of all actors) and of the
    kinds ``late_kinds``. If ``old_lists`` is true, a listing may show the names from before the last change.
    ``allowed`` returns whether a request can be made now, which represents the passing of time. ``twins`` are two
    actors that differ only in their names. ``after`` yields the stores that may replace a store, for example after a
    power cut; each of them is judged.
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
    """The result: ``wrong`` describes what broke, ``trace`` how, and ``whole`` is whether every state was reached."""

    name: str
    states: int = 0
    steps: int = 0
    seconds: float = 0.0
    wrong: str = ""
    whole: bool = False
    trace: list[str] = field(default_factory=list)
    outcomes: dict[str, set[str]] = field(default_factory=dict)


def renamed(thing: Any, names: dict[str, str]) -> Any:
    """Return the mirror image of a value, with names and their attempts' tokens, such as ``A1``, exchanged."""
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
    """Describe a value in a trace, without its empty fields."""
    if isinstance(thing, Name):
        return str(thing)
    if isinstance(thing, tuple):
        head = type(thing).__name__.lower() if hasattr(thing, "_fields") else ""
        return f"{head}({', '.join(described(each) for each in thing if each not in ((), '', None, 0, False))})"
    return getattr(thing, "__name__", str(thing))
