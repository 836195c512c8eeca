"""What opens a writer is imported in a thread, where it is first used while an event loop runs.

The modules behind it take 80 ms to import, and a loop would be held for as long. Whoever imports the name before a loop
runs, as most programs do, waits there, and gets the function itself.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

__all__ = ["LateOpener", "late_opener"]

_OPENERS = ("open_sharded_writer", "open_writer")


def late_opener(module: str, name: str) -> LateOpener | None:
    """What stands for a function that opens a writer, where a loop runs that importing its module would hold."""
    if name in _OPENERS and module not in sys.modules and _library() is not None:
        return LateOpener(module, name)
    return None


class LateOpener:
    """Stands for a function that gives an async context manager, until its module is imported.

    Asked for an attribute of the function, as `inspect.signature` does, it imports the module there and then.
    """

    def __init__(self, module: str, name: str) -> None:
        self._module = module
        self._name = name

    def __call__(self, *args: Any, **options: Any) -> AbstractAsyncContextManager[Any]:
        return _Opened(self._module, lambda: getattr(import_module(self._module), self._name)(*args, **options))

    def __getattr__(self, name: str) -> Any:
        return getattr(getattr(import_module(self._module), self._name), name)


class _Opened:
    """The context of one call: it imports the module in a thread, and then enters the function's own context."""

    def __init__(self, module: str, open_it: Callable[[], AbstractAsyncContextManager[Any]]) -> None:
        self._module = module
        self._open = open_it
        self._context: AbstractAsyncContextManager[Any] | None = None

    async def __aenter__(self) -> Any:
        await _in_thread(partial(_load, self._module, _library()))
        self._context = self._open()
        return await self._context.__aenter__()

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        assert self._context is not None, "it was entered"
        return await self._context.__aexit__(exc_type, exc, traceback)


def _load(module: str, library: str | None) -> None:
    import_module(module)
    import anyio

    # anyio imports what it has for a kind of loop when it is first called on one: on one of this thread's.
    anyio.run(anyio.sleep, 0, backend=library or "asyncio")


def _library() -> str | None:
    """The library whose loop runs in this thread. anyio would tell, and is part of what is not imported yet."""
    asyncio: Any = sys.modules.get("asyncio")
    if asyncio is not None:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            return "asyncio"
    trio: Any = sys.modules.get("trio")
    return "trio" if trio is not None and trio.lowlevel.in_trio_run() else None


def _in_thread(func: Callable[[], None]) -> Awaitable[None]:
    library: Any = sys.modules[_library() or "asyncio"]
    if library.__name__ == "trio":
        waiting: Awaitable[None] = library.to_thread.run_sync(func)
    else:  # not `asyncio.to_thread`, in whose context anyio would find a loop running
        waiting = library.get_running_loop().run_in_executor(None, func)
    return waiting
