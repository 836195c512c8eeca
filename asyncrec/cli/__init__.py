"""The ``asyncrec`` command: thin over `asyncrec.tools`, where all that it does can be had as functions.

    __init__.py   `main`, the entry point
    table.py      which commands there are; a command NAME is the function ``command`` of ``asyncrec.cli.NAME``
    app.py        the group, which imports a command only when it is called; errors to messages and exit codes
    options.py    the options that several commands share
    output.py     text and JSON for the terminal; nothing of a record reaches it raw
    progress.py   a bar on stderr, on a terminal only

Exit codes: 0 fine, 1 damage found, 2 wrong usage, 3 storage error, 4 a fault of asyncrec itself, 130 interrupted.

Nothing is imported here: ``asyncrec --help`` answers in a fraction of the time that NumPy and anyio take to load.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line (``sys.argv`` unless given); returns the exit code."""
    try:
        import typer  # noqa: F401  # looked for, so that its absence is told in one line
    except ImportError:
        sys.stderr.write("asyncrec: the command line needs typer and rich: pip install 'asyncrec[cli]'\n")
        return 2
    from asyncrec.cli.app import run

    return run(list(sys.argv[1:] if argv is None else argv))
