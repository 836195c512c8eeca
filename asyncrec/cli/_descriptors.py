"""What the command does where stdin, stdout or stderr is closed, or nobody reads it any more. Imports nothing heavy."""

from __future__ import annotations

import os
import sys
from contextlib import suppress


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
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # noqa: TID251  # nobody else has that name
