"""The text of ``asyncrec --help``, which is printed without importing typer or any command."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Iterator
from textwrap import wrap

from asyncrec.cli._installed import INSTALLED, SECTIONS
from asyncrec.cli._standard_streams import Warnings

_ABOUT = """\
Write, read, check and move TFRecord files and data sets, on any storage.

A PATH is a file, a folder, a pattern such as 'data/*.tfrecord', or a data set (its folder and name, without the shard \
numbers). It is local, or a URL of any installed backend, such as s3:// or gs://."""
OPTIONS = {
    "--version": "Show the version.",
    "--debug": "Show a traceback on error.",
    "--install-completion": "Install completion for the current shell.",
    "--show-completion": "Show completion for the current shell, to copy it or customize the installation.",
    "--help": "Show this message and exit.",
}
_CODES = (
    "Exit codes: 0 success, 1 damage or a difference found, 2 usage error, 3 storage error, 4 bug in asyncrec or a "
    "plugin, 5 no such key, 130 interrupted."
)
# The maximum and minimum width of the help in columns.
_WIDEST, _NARROWEST = 78, 38


def show_help() -> None:
    """Print the help text, and warn on stderr about unusable plugins."""
    with Warnings():
        page = help_page()
    sys.stdout.write(page + "\n")


def help_page() -> str:
    """Return the help text, which lists every installed command."""
    return "\n".join(_lines(help_width()))


def help_width() -> int:
    """Return the width of the help in columns, which depends on the width of the terminal."""
    return max(_NARROWEST, min(_WIDEST, shutil.get_terminal_size().columns - 2))


def _lines(width: int) -> Iterator[str]:
    yield "Usage: asyncrec [OPTIONS] COMMAND ..."
    for paragraph in _ABOUT.split("\n\n"):
        yield ""
        yield from _indented(paragraph, width)
    yield from _section("Options", OPTIONS.items(), width)
    sections: dict[str, list[tuple[str, str]]] = {title: [] for title in SECTIONS}
    commands = INSTALLED.all().values()
    longest = max(len(command.name) for command in commands)
    for command in commands:
        sections.setdefault(command.section, []).append((command.name.ljust(longest), command.words))
    for title, rows in sections.items():
        yield from _section(title, rows, width)
    yield ""
    yield from _indented(_CODES, width)


def _section(title: str, rows: Iterable[tuple[str, str]], width: int) -> Iterator[str]:
    rows = list(rows)
    column = max(len(name) for name, _ in rows) + 2
    yield ""
    yield f"{title}:"
    for name, words in rows:
        first, *rest = wrap(words, width - 2 - column)
        yield f"  {name.ljust(column)}{first}"
        yield from (" " * (column + 2) + line for line in rest)


def _indented(text: str, width: int) -> Iterator[str]:
    yield from wrap(text, width, initial_indent="  ", subsequent_indent="  ")
