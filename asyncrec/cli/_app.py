"""`run` runs a command line, and converts an error to a message and an exit code without a traceback.

With ``--debug`` anywhere before ``--``, the traceback is also printed.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Container, Iterator, MutableMapping
from functools import partial, wraps
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from asyncrec.cli._help import help_page, help_width
from asyncrec.cli._installed import INSTALLED, function_of
from asyncrec.cli._standard_streams import Warnings, complain, give_up_output

# The terminal width below which the help has one column.
_NARROW = 60
INTERRUPTED = 130  # the exit code of SIGINT in shells: 128 + 2


class _Command(TyperCommand):
    """A command whose help shows the description of an option below its name if the terminal is narrow."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        if formatter.width < _NARROW:
            formatter.write_dl = partial(formatter.write_dl, col_max=4)
        super().format_help(ctx, formatter)


class _Commands(MutableMapping[str, Any]):
    """A mapping of names to commands, which are created when they are first looked up."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            found = INSTALLED.find(name)
            if found is None:
                raise KeyError(name)
            one = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
            settings = {"terminal_width": help_width()}
            make = one.command(name, cls=_Command, no_args_is_help=False, context_settings=settings)
            make(_quiet_when_cut_off(function_of(found)))
            self._made[name] = typer.main.get_command(one)
        return self._made[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._made[name] = command

    def __delitem__(self, name: str) -> None:
        del self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(INSTALLED.all())

    def __len__(self) -> int:
        return len(INSTALLED.all())


def _quiet_when_cut_off(command: Callable[..., int]) -> Callable[..., int]:
    """Return a command that exits with 0 if the reader of its output closes the pipe, as in ``asyncrec cat | head``."""

    @wraps(command)
    def run(**arguments: Any) -> int:
        try:
            code = command(**arguments)
            sys.stdout.flush()
            return code
        except BrokenPipeError:  # caught here because typer would exit with an error
            give_up_output()
            return 0

    return run


class _Group(TyperGroup):
    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _Commands()

    def list_commands(self, ctx: Any) -> list[str]:
        return list(INSTALLED.all())

    def get_help(self, ctx: Any) -> str:
        return help_page()

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name = args[0]
        if INSTALLED.find(name) is None and (remedy := INSTALLED.missing(name)) is not None:
            from asyncrec.errors import UsageError

            raise UsageError(remedy)
        return super().resolve_command(ctx, args)


_app = typer.Typer(
    cls=_Group,
    name="asyncrec",
    no_args_is_help=False,
    rich_markup_mode=None,  # rich takes longer to load than all of asyncrec.cli
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"asyncrec {version('asyncrec')}")
        raise typer.Exit


@_app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show a traceback on error.")] = False,
) -> None:
    """Accept the options before a command. `asyncrec.cli._help` shows their help."""


def run(argv: list[str]) -> int:
    debug = "--debug" in (argv[: argv.index("--")] if "--" in argv else argv)
    with Warnings() as warnings:
        return _run(argv, warnings, debug=debug)


def _run(argv: list[str], warnings: Warnings, *, debug: bool) -> int:
    try:
        result = typer.main.get_command(_app).main(argv, prog_name="asyncrec", standalone_mode=False)
        if result == INTERRUPTED:  # typer returns this for a KeyboardInterrupt
            raise KeyboardInterrupt
        return int(result or 0)
    except (KeyboardInterrupt, typer.Abort):
        complain("interrupted")
        return INTERRUPTED
    except SystemExit as stop:  # typer exits this way after completions for a shell
        return stop.code if isinstance(stop.code, int) else 0
    except Exception as error:
        if _is_of_output(error):
            raise  # `main` reports the error and discards the output
        if debug:
            traceback.print_exc()
        return _explain(error, warnings.reported)


def _is_of_output(error: Exception) -> bool:
    """Return whether the error was raised by writing to stdout. If so, flushing the buffered data fails again."""
    if not isinstance(error, OSError):
        return False
    try:
        sys.stdout.flush()
    except OSError as again:
        return again.errno == error.errno
    return False


def _explain(error: Exception, reported: Container[str]) -> int:
    """Print an error on stderr, and return its exit code."""
    if isinstance(error, typer.TyperException):
        context: Any = getattr(error, "ctx", None)
        if isinstance(error, typer.BadParameter) and (said := number_refused(error.__cause__)) is not None:
            error.message = said
        complain(
            error.format_message().replace("Value error, ", ""), command=context.command_path if context else "asyncrec"
        )
        if context:
            sys.stderr.write(f"try '{context.command_path} --help'\n")
        return 2
    from asyncrec.cli._exits import explained

    code, lines = explained(error)
    for line in lines:
        if line not in reported:
            complain(line)
    return code


# The maximum number of characters of an argument to show.
_SHOWN = 40


def number_refused(error: BaseException | None) -> str | None:
    """Return a message for typer's error about an invalid number, or `None` for any other error."""
    listed = getattr(error, "errors", None)
    if listed is None:
        return None
    (mistake, *_) = listed(include_url=False)
    limits: dict[str, Any] = mistake.get("ctx", {})
    given = str(mistake["input"])
    match mistake["type"]:
        case "int_parsing_size":
            return f"{given[:3]}... has too many digits for a number"
        case "int_parsing" | "int_from_float" | "int_type":
            return f"{given[:_SHOWN]!r} is not a whole number"
        case _ if given.strip().lower().lstrip("+-") == "nan":
            return f"{given!r} is not a number"
        case "float_parsing" | "float_type":
            return f"{given[:_SHOWN]!r} is not a number"
        case "greater_than_equal":
            return f"{given[:_SHOWN]} is too small; the minimum is {limits['ge']:g}"
        case "less_than_equal":
            return f"{given[:_SHOWN]} is too large; the maximum is {limits['le']:g}"
    return None
