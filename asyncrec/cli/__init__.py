"""The ``asyncrec`` command, a thin layer over the functions of `asyncrec.tools`.

    __init__         `main`, the entry point
    _installed       the built-in commands and those of plugins; the command NAME is the function ``command`` in
                     ``_NAME``, which calls the function NAME in `asyncrec.tools`
    _help            the page of ``asyncrec --help``
    _app             the command group, which imports a command when it is called, and converts errors to exit codes
    _exits           the exit codes, and the messages and exit codes of errors
    _options         the arguments and options shared by several commands
    _values          functions that parse the text of these options
    _splits          shared by ``from-csv`` and ``from-folder``
    _show_records    shared by ``head``, ``cat``, ``tail`` and ``sample``; `_record_formats` shows one record
    _written         shared by ``filter``, ``sample``, ``merge`` and ``dedupe``
    _watch_screen    the screen of ``watch``, in the width of the terminal
    _completion      completions for shells
    _standard_streams  handling of closed stdin, stdout and stderr, and messages on stderr
    _standard        ``-`` in place of a path
    _output          text and JSON for the terminal, with the control characters of records escaped
    _progress        a progress bar on stderr, only on a terminal

Exit codes: 0 success, 1 damage or a difference found, 2 usage error, 3 storage error, 4 bug in asyncrec or a plugin, 5
no such key, 130 interrupted.

The names that plugins use in their commands are exported here. They are imported on first use, because ``asyncrec
--help`` must take only a fraction of the time needed to load typer, NumPy and anyio.

    Path, Jobs, Json, Debug,
    StorageOptions, SourceOptions, TargetOptions   the parameters shared by commands
    parse_options                                  parses the values of the last three parameters into a dict
    run_async                                      runs an async function
    say, print_json                                print text or JSON, with the control characters of records escaped
    human_bytes                                    formats a size with a unit
    Bar                                            a progress bar
    FINE, DAMAGE                                   exit codes for commands to return; for other codes, raise errors
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from asyncrec._lazy import lazy
from asyncrec.cli._standard_streams import give_up_output, take_closed_descriptors

if TYPE_CHECKING:
    from asyncrec.cli._exits import DAMAGE as DAMAGE
    from asyncrec.cli._exits import FINE as FINE
    from asyncrec.cli._options import Debug as Debug
    from asyncrec.cli._options import Jobs as Jobs
    from asyncrec.cli._options import Json as Json
    from asyncrec.cli._options import Path as Path
    from asyncrec.cli._options import SourceOptions as SourceOptions
    from asyncrec.cli._options import StorageOptions as StorageOptions
    from asyncrec.cli._options import TargetOptions as TargetOptions
    from asyncrec.cli._options import run_async as run_async
    from asyncrec.cli._output import human_bytes as human_bytes
    from asyncrec.cli._output import print_json as print_json
    from asyncrec.cli._output import say as say
    from asyncrec.cli._progress import Bar as Bar
    from asyncrec.cli._values import parse_options as parse_options

__getattr__, __dir__, _names = lazy(
    __name__,
    {
        "asyncrec.cli._exits": "DAMAGE FINE",
        "asyncrec.cli._options": "Debug Jobs Json Path SourceOptions StorageOptions TargetOptions run_async",
        "asyncrec.cli._output": "human_bytes print_json say",
        "asyncrec.cli._progress": "Bar",
        "asyncrec.cli._values": "parse_options",
    },
)

__all__ = ["main", *_names]


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line, by default ``sys.argv``, and return the exit code."""
    given = list(sys.argv[1:] if argv is None else argv)
    if not take_closed_descriptors():
        return 3
    try:
        code = _call(given)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader has closed the pipe: ``asyncrec cat ... | head``
        give_up_output()
        return 0
    except OSError as error:
        give_up_output()
        sys.stderr.write(f"asyncrec: standard output: {error.strerror}\n")
        return 3


def _call(given: list[str]) -> int:
    if find_spec("typer") is None:
        sys.stderr.write("asyncrec: the command line needs typer and rich: pip install 'asyncrec[cli]'\n")
        return 2
    if given == ["--help"]:
        from asyncrec.cli._help import show_help

        show_help()
        return 0
    if not given and "_ASYNCREC_COMPLETE" not in os.environ:
        from asyncrec.cli._help import show_help

        show_help()
        sys.stderr.write("asyncrec: no command was passed; for help on a command, run 'asyncrec COMMAND --help'\n")
        return 2
    from asyncrec.cli._app import run

    return run(given)
