"""`complain` writes to stderr, in lines that a terminal does not act on; `Warnings` does so for what is warned of."""

from __future__ import annotations

import logging
import sys
from types import TracebackType


class Warnings(logging.Handler):
    """A context in which what is warned of (a store that is tried again, say) is told, line by line.

    What other packages warn of is, too: Python would write it as it is, with control characters of what was read.

    Attributes:
        reported: the messages.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.reported: set[str] = set()

    def __enter__(self) -> Warnings:
        logging.getLogger().addHandler(self)
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        logging.getLogger().removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        self.reported.add(message)
        complain(message)


def complain(message: str, command: str = "asyncrec") -> None:
    """A line on stderr."""
    from asyncrec.cli._output import clean

    if sys.stderr is None:
        return
    try:
        sys.stderr.write(f"{clean(command)}: {clean(message)}\n")
        sys.stderr.flush()
    except OSError:  # nobody can be told
        pass
