"""An `Owner` holds an async context open for threads; decorators make the synchronous API of the asynchronous one.

`Owner` is one task on the portal's loop, in which an async context is entered and left, as cancel scopes require. What
the context yielded may be used in two ways: by `Owner.call`, each call in a task of its own, for objects that any
number of tasks may use; or by `Owner.call_inside`, in the owner's task, one call after the other, for objects that
belong to one task.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import wraps
from inspect import signature
from types import TracebackType
from typing import Any, Concatenate, Generic, NoReturn, ParamSpec, TypeVar, TypeVarTuple

from asyncrec._concurrency.forks import OfOneProcess
from asyncrec.blocking._held import Held
from asyncrec.blocking._portal import Call, current_portal
from asyncrec.errors import ArgumentTypeError

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
P = ParamSpec("P")
Ts = TypeVarTuple("Ts")

Finish = Callable[[BaseException | None], None]


class Owner(Generic[A]):
    """The holder of ``context``, which is open from `enter` to `leave`. ``what`` names it in errors.

    Like a Python file, an owner that is dropped closes what it holds, as an exception would, and warns.
    ``keeps`` is another owner, whose context this one's needs and therefore keeps alive.
    """

    def __init__(self, context: AbstractAsyncContextManager[A], what: str, *, keeps: Owner[Any] | None = None) -> None:
        if keeps is not None:
            keeps.check()  # a child of a fork has a loop too, and must not open its parent's things there
        self._portal = current_portal()
        # On the loop nothing refers to this object, so that it can be dropped.
        self._held = Held(context, what)
        self._keeps = keeps
        self._task: Call[None] | None = None
        self._finish: weakref.WeakMethod[Finish] | None = None
        self.what = what

    def enter(self) -> A:
        """Enter the context, and return what it yields."""
        self._portal.check(self.what)
        held = self._held
        self._task = Call(self._portal, held.hold)
        try:
            self._task.begin()
            held.entered.wait()
        except BaseException:
            self._task.cancel()
            raise
        if held.ended and not held.opened:
            self._task.result()  # raises
        return held.value

    @property
    def value(self) -> A:
        """The object that the context yielded."""
        return self._held.value

    def finish_with(self, finish: Finish) -> None:
        """Call a method of the handle before the context is left, with the error that the body ended with.

        The context is left with the error that it raises. The method is kept weakly, so a dropped handle still closes.
        """
        self._finish = weakref.WeakMethod(finish)

    def rescue_with(self, rescue: Callable[[], Awaitable[None]]) -> None:
        """Await ``rescue`` before the context is left without `leave`; see `Held`."""
        self._held.rescue = rescue

    def leave(self, error: BaseException | None) -> bool:
        """Leave the context, with the error that the body ended with; return whether the error was suppressed."""
        if isinstance(error, GeneratorExit) and (self._portal.is_own_thread() or self._portal.has_ended):
            # Garbage is collected on any thread: a generator that held this open was dropped, and cannot wait here.
            self.abandon()
            return False
        self._portal.check(self.what)  # before the handle is finished, whose lock a thread of the parent may have held
        finish = None if self._finish is None else self._finish()
        if finish is not None:
            try:
                finish(error)
            except BaseException as failure:
                self._leave(failure)
                raise
        return self._leave(error)

    def _leave(self, error: BaseException | None) -> bool:
        self._portal.check(self.what)
        assert self._task is not None, "it was entered"
        self._portal.portal.call(self._held.leave, error)
        self._task.result()
        return self._held.suppressed

    def abandon(self) -> bool:
        """Close what is held, as an exception would, without waiting; return whether anything was. A finaliser may."""
        task: Call[None] | None
        task, self._task = getattr(self, "_task", None), None
        # In a child made by fork nothing is open: the loop is its parent's.
        if task is None or self._held.ended or self._portal.is_of_another_process():
            return False
        task.abandon()
        return True

    def __del__(self) -> None:
        if not self.abandon():
            return
        text = f"{self.what} was not closed; use it in a `with` statement"
        warnings.warn(text, ResourceWarning, stacklevel=2, source=self)

    def check(self) -> None:
        """Raise the error that `call_inside` would, if the owner cannot be used.

        Raises:
            RuntimeError: this is another process than the one that opened it, or the loop's own thread.
            ClosedResourceError: the context was left.
        """
        self._portal.check(self.what)
        self._held.check_open()

    def call(self, func: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
        """Await ``func(*args)`` in a task of its own. If interrupted, the task is cancelled; the context stays open."""
        return self._portal.run(func, *args, what=self.what)

    def start(self, func: Callable[[*Ts], Awaitable[None]], *args: *Ts) -> Call[None]:
        """Begin ``func(*args)`` in a task that no call waits for; it must still work after the context was left."""
        self._portal.check(self.what)
        task = Call(self._portal, func, *args)
        task.begin()
        return task

    def call_inside(self, func: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
        """Await ``func(*args)`` in the owner's task. An interruption has the same effect as on `call`."""

        async def work() -> T:
            return await func(*args)

        return self._portal.run(self._held.inside, work, what=self.what)

    def call_sync(self, func: Callable[[*Ts], T], *args: *Ts) -> T:
        """Call ``func(*args)`` on the loop's thread, for objects that are not safe to use from another thread."""

        async def work() -> T:
            return func(*args)

        return self._portal.run(work, what=self.what)


class Handle(OfOneProcess, Generic[A]):
    """An object of the synchronous API: the asynchronous object, and the owner that keeps it open."""

    def __init__(self, owner: Owner[A], value: A) -> None:
        super().__init__()
        self._owner = owner
        self._value = value
        _owners[self] = owner


# Of each handle, for the functions that open one thing over another. A user's handle has no such attribute to see.
_owners: weakref.WeakKeyDictionary[Handle[Any], Owner[Any]] = weakref.WeakKeyDictionary()


def owner_of(handle: Handle[A]) -> Owner[A]:
    """Return the owner that keeps a handle open."""
    return _owners[handle]


H = TypeVar("H", bound=Handle[Any])


class Opened(AbstractContextManager[H, bool]):
    """A synchronous context manager over an asynchronous one."""

    def __init__(self, make: Callable[[Owner[Any], Any], H], open_: Callable[[], Owner[Any]], what: str) -> None:
        self._make = make
        self._open = open_
        self._what = what

    def __enter__(self) -> H:
        self._owner = self._open()
        self._handle = self._make(self._owner, self._owner.enter())
        return self._handle

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(
            f"{self._what} must be opened in a with statement: with {self._what}(...) as it: it.{name}"
        )

    def __iter__(self) -> NoReturn:
        raise ArgumentTypeError(
            f"{self._what} must be opened in a with statement: with {self._what}(...) as it: for each in it: ..."
        )

    def __getitem__(self, index: object) -> NoReturn:
        raise ArgumentTypeError(
            f"{self._what} must be opened in a with statement: with {self._what}(...) as it: it[{index!r}]"
        )

    def __aenter__(self) -> NoReturn:
        raise ArgumentTypeError(
            f"{self._what}: open objects of asyncrec.blocking with `with`; `async with` is for objects of asyncrec "
            "itself"
        )

    def __aexit__(self, *error: object) -> NoReturn:
        raise AssertionError("it cannot be entered so")

    def abandon(self) -> None:
        """Close it as an exception would, without waiting or a warning, for an object that warns by itself."""
        self._owner.abandon()

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        return self._owner.leave(exc)


def as_context(
    func: Callable[P, AbstractAsyncContextManager[A]], handle: Callable[[Owner[A], A], H]
) -> Callable[P, Opened[H]]:
    """Make a function that opens a ``handle`` if ``func`` opens an asynchronous object; all else is the same."""

    @wraps(func)
    def opened(*args: P.args, **kwargs: P.kwargs) -> Opened[H]:
        return Opened(handle, lambda: Owner(func(*args, **kwargs), func.__name__), func.__name__)

    return opened


def as_call(func: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Make a function that returns what awaiting ``func`` returns; parameters and docstring are the same."""

    @wraps(func)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        async def run() -> T:
            return await func(*args, **kwargs)

        return current_portal().run(run)

    return call


def as_twin(func: Callable[P, Coroutine[Any, Any, T]]) -> Callable[[Callable[..., T]], Callable[P, T]]:
    """Return a decorator that gives the twin of ``func`` on this side the parameters and the docstring of ``func``."""

    def decorate(twin: Callable[..., T]) -> Callable[P, T]:
        return wraps(func)(twin)

    return decorate


def with_parameters_of(
    func: Callable[Concatenate[Any, P], Any],
) -> Callable[[Callable[..., T]], Callable[Concatenate[Any, P], T]]:
    """Declare that a method takes the parameters of ``func``, and passes its arguments on to it."""
    given = list(signature(func).parameters.values())

    def declared(method: Callable[..., T]) -> Callable[Concatenate[Any, P], T]:
        method.__signature__ = signature(method).replace(parameters=given)  # type: ignore[attr-defined]  # of any function
        return method

    return declared
