"""What the tests of the library and of its plugins share."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from functools import partial
from typing import Any

import trio
from anyio._backends._trio import TestRunner, TrioBackend


class _PlainRunner(TestRunner):
    """Runs a test as a program runs, by `trio.run`, unless a fixture is async and has to be on the same loop.

    anyio's own has trio as the guest of another loop: whenever there is nothing to do but to wait, a thread is told to
    wait, and tells when it has. That is a tenth of the processor time of tests on trio, and no program runs like that.
    """

    _shared = False

    def run_fixture(self, fixture_func: Callable[..., Coroutine[Any, Any, Any]], kwargs: dict[str, Any]) -> Any:
        self._shared = True
        return super().run_fixture(fixture_func, kwargs)

    def run_asyncgen_fixture(
        self, fixture_func: Callable[..., AsyncGenerator[Any, Any]], kwargs: dict[str, Any]
    ) -> Iterable[Any]:
        self._shared = True
        return super().run_asyncgen_fixture(fixture_func, kwargs)

    def run_test(self, test_func: Callable[..., Coroutine[Any, Any, Any]], kwargs: dict[str, Any]) -> None:
        if self._shared:
            super().run_test(test_func, kwargs)
        else:
            trio.run(partial(test_func, **kwargs), **self._options)


TrioBackend.create_test_runner = classmethod(lambda cls, options: _PlainRunner(**options))  # type: ignore[method-assign]
