"""`Owner` keeps an async context open for threads to use. Decorators derive the synchronous API from the async API.

`Owner` runs one task on the portal's loop, in which an async context is entered and exited, as cancel scopes require.
The object that the context yielded may be used in two ways. `Owner.call` runs each call in a separate task, for objects
that any number of tasks may use. `Owner.call_inside` runs the calls one after another in the owner's task, for objects
that belong to one task.
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
    """The owner of ``context``, which is open from `enter` until `leave`. ``what`` is its name in error messages.

    Like a Python file, an owner that is garbage-collected while open closes its context as after an exception, and
    warns. ``keeps`` is another owner, which is kept alive because ``context`` depends on the context of that owner.
    """

    def __init__(self, context: AbstractAsyncContextManager[A], what: str, *, keeps: Owner[Any] | None = None) -> None:
        if keeps is not None:
            keeps.check()  # a forked child must not open objects of its parent on its own loop
        self._portal = current_portal()
        # Nothing on the loop refers to this object, so it can be garbage-collected.
        self._held = Held(context, what)
        self._keeps = keeps
        self._task: Call[None] | None = None
        self._finish: weakref.WeakMethod[Finish] | None = None
        self.what = what

    def enter(self) -> A:
        """Enter the context and return the object that it yields."""
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
        """Register ``finish`` to be called before the context exits, with the error that ended the body or `None`.

        If ``finish`` raises an error, the context exits with that error. ``finish`` is a method of the handle, to which
        only a weak reference is kept, so that the handle can be garbage-collected.
        """
        self._finish = weakref.WeakMethod(finish)

    def rescue_with(self, rescue: Callable[[], Awaitable[None]]) -> None:
        """Register ``rescue`` to be awaited before the context exits, unless `leave` is called. See `Held`."""
        self._held.rescue = rescue

    def leave(self, error: BaseException | None) -> bool:
        """Exit the context with the error that ended the body. Return whether the context suppressed the error."""
        if isinstance(error, GeneratorExit) and (self._portal.is_own_thread() or self._portal.has_ended):
            # A generator that used this owner was garbage-collected, perhaps in the loop's thread, and must not wait.
            self.abandon()
            return False
        self._portal.check(self.what)  # before `finish`, which in a forked child might wait for its lock forever
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
        assert self._task is not None, "the owner was entered"
        self._portal.portal.call(self._held.leave, error)
        self._task.result()
        return self._held.suppressed

    def abandon(self) -> bool:
        """Close the context as after an exception, without waiting. Return whether it was open. Safe in a finaliser."""
        task: Call[None] | None
        task, self._task = getattr(self, "_task", None), None
        # A forked child has no open context, because the loop runs in its parent.
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
        """Raise the error that `call_inside` would raise if the owner cannot be used.

        Raises:
            RuntimeError: the owner was opened in another process, or this is the loop's own thread.
            ClosedResourceError: the context has been exited.
        """
        self._portal.check(self.what)
        self._held.check_open()

    def call(self, func: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
        """Await ``func(*args)`` in a new task. An interruption cancels the task but leaves the context open."""
        return self._portal.run(func, *args, what=self.what)

    def start(self, func: Callable[[*Ts], Awaitable[None]], *args: *Ts) -> Call[None]:
        """Start ``func(*args)`` in a background task. ``func`` must also work after the context has exited."""
        self._portal.check(self.what)
        task = Call(self._portal, func, *args)
        task.begin()
        return task

    def call_inside(self, func: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
        """Await ``func(*args)`` in the owner's task. An interruption is handled as in `call`."""

        async def work() -> T:
            return await func(*args)

        return self._portal.run(self._held.inside, work, what=self.what)

    def call_sync(self, func: Callable[[*Ts], T], *args: *Ts) -> T:
        """Call ``func(*args)`` on the loop's thread, for objects that are not thread-safe."""

        async def work() -> T:
            return func(*args)

        return self._portal.run(work, what=self.what)


class Handle(OfOneProcess, Generic[A]):
    """The base class of synchronous objects. A handle has the asynchronous object and the owner that keeps it open."""

    def __init__(self, owner: Owner[A], value: A) -> None:
        super().__init__()
        self._owner = owner
        self._value = value
        _owners[self] = owner


# The owner of each handle, for functions that open one object on top of another. An attribute would be public.
_owners: weakref.WeakKeyDictionary[Handle[Any], Owner[Any]] = weakref.WeakKeyDictionary()


def owner_of(handle: Handle[A]) -> Owner[A]:
    """Return the owner that keeps ``handle`` open."""
    return _owners[handle]


H = TypeVar("H", bound=Handle[Any])


class Opened(AbstractContextManager[H, bool]):
    """A synchronous context manager that wraps an asynchronous context manager."""

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
        """Close the object as after an exception, without waiting or warning, for callers that warn themselves."""
        self._owner.abandon()

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        return self._owner.leave(exc)


def as_context(
    func: Callable[P, AbstractAsyncContextManager[A]], handle: Callable[[Owner[A], A], H]
) -> Callable[P, Opened[H]]:
    """Return a function like ``func`` that opens a ``handle`` instead of the asynchronous object."""

    @wraps(func)
    def opened(*args: P.args, **kwargs: P.kwargs) -> Opened[H]:
        return Opened(handle, lambda: Owner(func(*args, **kwargs), func.__name__), func.__name__)

    return opened


def as_call(func: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Return a synchronous function with the parameters, docstring and result of ``func``."""

    @wraps(func)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        async def run() -> T:
            return await func(*args, **kwargs)

        return current_portal().run(run)

    return call


def as_twin(func: Callable[P, Coroutine[Any, Any, T]]) -> Callable[[Callable[..., T]], Callable[P, T]]:
    """Return a decorator that gives a blocking version of ``func`` the parameters and docstring of ``func``."""

    def decorate(twin: Callable[..., T]) -> Callable[P, T]:
        return wraps(func)(twin)

    return decorate


def with_parameters_of(
    func: Callable[Concatenate[Any, P], Any],
) -> Callable[[Callable[..., T]], Callable[Concatenate[Any, P], T]]:
    """Return a decorator that gives a method the signature of ``func``, to which the method passes its arguments."""
    given = list(signature(func).parameters.values())

    def declared(method: Callable[..., T]) -> Callable[Concatenate[Any, P], T]:
        method.__signature__ = signature(method).replace(parameters=given)  # type: ignore[attr-defined]  # a function accepts it
        return method

    return declared
