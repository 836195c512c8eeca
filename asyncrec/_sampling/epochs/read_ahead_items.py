"""`ReadAheadItems` keeps the items that a stream has read ahead but not yet returned."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Generic, Protocol, TypeVar

import anyio

from asyncrec._concurrency.forks import forked_error, on_fork
from asyncrec._concurrency.tasks import TaskScope

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Ahead(Protocol[T_co]):
    """A reader, such as a `ReadAhead` or a `WindowsAhead`, that fetches items in tasks before they are needed."""

    async def next(self) -> Iterable[T_co] | None:
        """Return the next items, or `None` at the end."""

    def cancel(self) -> None:
        """Cancel the reads in progress."""


class ReadAheadItems(Generic[T]):
    """Async context manager that keeps items that were read ahead, in order. Only one task may use it.

    The items must not be used outside the context or in a forked child (see `check_open`).

    Args:
        path: the path of the data set, for messages.
        what: the name of the reader, for messages, such as ``"stream"``.

    Attributes:
        items: the items that have not yet been returned.
        begun: whether `begin` was called.
    """

    def __init__(self, *, path: str, what: str) -> None:
        self.items: deque[T] = deque()
        self.begun = False
        self._path = path
        self._what = what
        self._scope: TaskScope | None = None
        self._ahead: Ahead[T] | None = None
        self._closed = False
        self._forked = False
        on_fork(self)

    def forked(self) -> None:
        """Discard the items, and make later uses raise an error. Called in a forked child."""
        self._forked = True
        self.items.clear()

    def check_new(self) -> None:
        """Raise RuntimeError if the context has already been entered."""
        if self._scope is not None:
            raise RuntimeError(f"a {self._what} can only be entered once; create a new one")

    async def __aenter__(self) -> ReadAheadItems[T]:
        self.check_new()
        self._forked = False  # an object that was created before a fork may still be entered after it
        self._scope = TaskScope()
        await self._scope.__aenter__()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._scope is not None, "the context is entered"
        self._ahead = None
        self._closed = True
        self.items.clear()
        self._scope.cancel()
        await self._scope.__aexit__(exc_type, exc, traceback)

    def check_open(self) -> None:
        """Raise an error if items cannot be read now in this process.

        Raises:
            RuntimeError: this is the child of a fork.
            ClosedResourceError: the context is not open.
        """
        if self._forked:
            raise forked_error(f"{self._path}: the {self._what}")
        if self._scope is None or self._closed:
            raise anyio.ClosedResourceError(f"a {self._what} must be read inside its `async with`")

    def begin(self, make: Callable[[TaskScope], Ahead[T]]) -> None:
        """Cancel any previous reader, discard its items, and read from the reader that ``make`` returns."""
        assert self._scope is not None, "the context is entered"
        if self._ahead is not None:
            self._ahead.cancel()
            self.items.clear()
        self._ahead = make(self._scope)
        self.begun = True

    async def wait_for(self, count: int) -> None:
        """Wait until `items` has at least ``count`` items. The reader must have that many items left."""
        assert self._ahead is not None, "begin was called"
        while len(self.items) < count:
            fetched = await self._ahead.next()
            assert fetched is not None, "enough items are left"
            self.items.extend(fetched)
