"""`FaultySource`: the data source with a fault while it writes. Spark's workers import this module."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from typing import Any

from asyncrec.errors import StorageError
from asyncrec.integrations.spark import AsyncrecDataSource
from asyncrec.integrations.spark._source import writing_options
from asyncrec.integrations.spark._writing import Writer

__all__ = ["FaultySource"]


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class FaultyWriter(Writer):
    """A writer with a ``fault``, which occurs in a task only the first time."""

    fault = ""
    flag = ""

    def _first(self) -> bool:
        try:
            os.close(os.open(self.flag, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def write(self, iterator: Iterator[Any]) -> Any:
        def batches() -> Iterator[Any]:
            for batch in iterator:
                yield batch
                if self.fault == "killed before" and self._first():
                    die()

        made = super().write(batches())
        if made.rows:
            if self.fault == "killed after" and self._first():
                die()
            if self.fault == "raises once" and self._first():
                raise RuntimeError("not now")
            if self.fault == "raises":
                raise RuntimeError("no more")
            if self.fault == "forgets":
                made.entries = made.entries[1:]
        return made

    def commit(self, messages: Sequence[Any]) -> None:
        if self.fault == "commit fails":
            raise StorageError("the store is full")
        super().commit(messages)
        if self.fault == "answer lost":
            raise StorageError("no answer")
        if self.fault == "commit killed":
            die()


class FaultySource(AsyncrecDataSource):
    @classmethod
    def name(cls) -> str:
        return "faulty"

    def writer(self, schema: Any, overwrite: bool) -> Any:
        options = dict(self.options)
        fault, flag = options.pop("fault"), options.pop("flag")
        writer = FaultyWriter(writing_options(options), schema, overwrite=overwrite)
        writer.fault, writer.flag = fault, flag
        return writer
