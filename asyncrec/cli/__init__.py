"""The ``asyncrec`` command is a thin layer over `asyncrec.tools`, where all that it does can be called as functions.

    __init__         `main`, the entry point
    _table           the commands that are built in; NAME is the function ``command`` of ``_NAME``, and does what the
                     function NAME of `asyncrec.tools` does
    _installed       those, and the ones of plugins
    _help            the page of ``asyncrec --help``
    _app             the group, which imports a command only when it is called; errors to messages and exit codes
    _exits           the exit codes, and which error has which
    _options         the arguments and options that several commands share
    _values          their text as values
    _splits          what ``from-csv`` and ``from-folder`` share
    _show_records    what ``head``, ``cat``, ``tail`` and ``sample`` share; `_record_formats` shows one record
    _written         what ``filter``, ``sample``, ``merge`` and ``dedupe`` share
    _watch_screen    what ``watch`` shows, as wide as the terminal is
    _completion      what shells complete
    _standard_streams  stdin, stdout and stderr that are closed, and what is said on stderr
    _standard        ``-`` in place of a path
    _output          text and JSON for the terminal; nothing of a record reaches it raw
    _progress        a bar on stderr, on a terminal only

Exit codes: 0 fine, 1 damage found, 2 wrong usage, 3 storage error, 4 a fault of asyncrec or of a plugin, 5 no record
has the key, 130 interrupted.

What a plugin's command is written with is exported here, and imported when it is first used: ``asyncrec --help``
answers in a fraction of the time that typer, NumPy and anyio take to load.

    Path, Jobs, Json, Debug,
    StorageOptions, SourceOptions, TargetOptions   the parameters commands share
    parse_options                                  the text of the last three as a dict
    run_async                                      runs an async function
    say, print_json, human_bytes                   what prints; nothing of a record reaches the terminal raw
    Bar                                            a bar of progress
    FINE, DAMAGE                                   what a command returns; errors have the other exit codes
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
    """Run one command line (``sys.argv`` unless given); returns the exit code."""
    given = list(sys.argv[1:] if argv is None else argv)
    if not take_closed_descriptors():
        return 3
    try:
        code = _call(given)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # whoever reads it has enough: ``asyncrec cat ... | head``
        give_up_output()
        return 0
    except OSError as error:
        give_up_output()
        sys.stderr.write(f"asyncrec: standard output: {error.strerror}\n")
        return 3


def _call(given: list[str]) -> int:
    if find_spec("typer") is None:  # its absence is told in one line
        sys.stderr.write("asyncrec: the command line needs typer and rich: pip install 'asyncrec[cli]'\n")
        return 2
    if given == ["--help"]:
        from asyncrec.cli._help import show_help

        show_help()
        return 0
    if not given and "_ASYNCREC_COMPLETE" not in os.environ:
        from asyncrec.cli._help import show_help

        show_help()
        sys.stderr.write("asyncrec: no command was given; 'asyncrec COMMAND --help' explains a command\n")
        return 2
    from asyncrec.cli._app import run

    return run(given)
