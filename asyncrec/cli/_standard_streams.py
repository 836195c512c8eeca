"""stdin, stdout and stderr: what the command does if one is closed or is not read any more, and lines on stderr.

`complain` writes them, so that a terminal does not act on what is in them; `Warnings` does so for what is warned of.
Nothing heavy is imported.
"""

from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress
from types import TracebackType


def take_closed_descriptors() -> bool:
    """Put the null device where stdin, stdout or stderr is closed, so that no file gets its number; False for stdout.

    Without stdout nothing could be said of what was asked for.
    """
    if None not in (sys.stdin, sys.stdout, sys.stderr):
        return True
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # noqa: TID251  # it gets the lowest number that is free
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115  # for as long as the process
    if sys.stdout is None:
        sys.stderr.write("asyncrec: standard output is closed\n")
        return False
    return True


def give_up_output() -> None:
    """Send what Python still holds of the output nowhere, where it would complain at its end."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # noqa: TID251  # a name that no other user can change


class Warnings(logging.Handler):
    """A context that writes each warning (of a store that is tried again, say) as a line on stderr.

    Warnings of other packages, too: Python would write them as they are, with control characters of what was read.

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
    except OSError:  # stderr was the last way to tell
        pass
