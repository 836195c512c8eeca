"""Functions that handle closed stdin, stdout and stderr, and that print messages on stderr.

`complain` prints a message with its control characters escaped, and `Warnings` does the same for logged warnings. This
module imports no slow packages.
"""

from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress


def take_closed_descriptors() -> bool:
    """Open the null device in place of a closed stdin, stdout or stderr, so that no other file gets its descriptor.

    Return `False` if stdout was closed, in which case no command can print its result.
    """
    if None not in (sys.stdin, sys.stdout, sys.stderr):
        return True
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # noqa: TID251  # gets the lowest free descriptor
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115  # open until the process ends
    if sys.stdout is None:
        sys.stderr.write("asyncrec: standard output is closed\n")
        return False
    return True


def give_up_output() -> None:
    """Discard the output that is still buffered, because flushing it at exit would raise an error."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # noqa: TID251  # no other user can replace the null device


class Warnings(logging.Handler):
    """A context manager that prints logged warnings, such as those of retried requests, as lines on stderr.

    This includes warnings from other packages, whose control characters Python would not escape.

    Attributes:
        reported: the messages that were printed.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.reported: set[str] = set()

    def __enter__(self) -> Warnings:
        logging.getLogger().addHandler(self)
        return self

    def __exit__(self, *error: object) -> None:
        logging.getLogger().removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        self.reported.add(message)
        complain(message)


def complain(message: str, command: str = "asyncrec") -> None:
    """Print a message on stderr, preceded by the name of the command."""
    from asyncrec.cli._output import clean

    if sys.stderr is None:
        return
    try:
        sys.stderr.write(f"{clean(command)}: {clean(message)}\n")
        sys.stderr.flush()
    except OSError:  # this error cannot be reported, either
        pass
