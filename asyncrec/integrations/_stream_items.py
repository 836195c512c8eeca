"""`Items`: an iteration over a stream for a framework's loader, opened by the process that reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from os import getpid
from typing import Any

from asyncrec.blocking._streams import Stream

Open = Callable[[ExitStack], tuple[Stream[Any], Iterator[Any]]]


class Items(Iterator[Any]):
    """An iterator over a stream's items, with the stream's state. The stream is closed after the last item or on
    garbage collection.

    The first call of a method opens the stream, rather than the constructor. PyTorch passes an error of an item on to
    the loop, but an error at the beginning of an iteration would end a persistent worker.
    """

    def __init__(self, open_: Open, transform: Callable[[Any], Any] | None, state: Mapping[str, Any] | None) -> None:
        self._open: Open | None = open_
        self._transform = transform
        self._state = state
        self._stack = ExitStack()
        self._pid = getpid()
        self._opened: tuple[Stream[Any], Iterator[Any]] | None = None
        self._last: dict[str, Any] | None = None

    def __next__(self) -> Any:
        if self._last is not None:
            raise StopIteration
        stream, items = self._opened or self._begin()
        try:
            item = next(items)
        except StopIteration:
            self._last = stream.state_dict()
            self._stack.close()
            raise
        return item if self._transform is None else self._transform(item)

    def state_dict(self) -> dict[str, Any]:
        return (self._opened or self._begin())[0].state_dict() if self._last is None else self._last

    def _begin(self) -> tuple[Stream[Any], Iterator[Any]]:
        assert self._open is not None, "it is opened once"
        try:
            opened = self._open(self._stack)
            if self._state is not None:
                opened[0].load_state_dict(self._state)
        except BaseException:
            self._stack.close()
            raise
        self._opened, self._open = opened, None  # a method of the data set, which would form a reference cycle
        return opened

    def __del__(self) -> None:
        if self._pid == getpid():
            with suppress(RuntimeError):  # Python is exiting, and has already closed it
                self._stack.close()
