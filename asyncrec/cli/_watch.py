"""``asyncrec watch PATH``."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from asyncrec.cli._exits import DAMAGE, FINE
from asyncrec.cli._options import Debug, Json, StorageOptions, feature_option, run_async
from asyncrec.cli._output import print_json, say
from asyncrec.cli._standard_streams import complain
from asyncrec.cli._values import parse_options
from asyncrec.errors import UsageError

if TYPE_CHECKING:
    from asyncrec.tools import WatchReport

# The seconds between reports. A report is cheap on a disk, but in a store it requires two listings, plus a request for
# each writer.
_EVERY = 2.0
_EVERY_REMOTE = 10.0

_HOME, _END_OF_LINE, _BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
_OTHER_SCREEN, _BACK = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"


def command(
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="A data set, which need not exist yet, or the folder of a spool.")
    ],
    every: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=0.1, help="Time between reports. Default: 2 on a disk, 10 in a store."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Print one report and exit.")] = False,
    by: Annotated[
        str | None, feature_option("Count the first records of each new shard by the values of this feature.")
    ] = None,
    max_age: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            min=0,
            help=(
                "With --once, exit with 1 if a writer's last report (in a store, its last commit) or its oldest record "
                "that is not yet safe is older than this."
            ),
        ),
    ] = None,
    idle: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            min=0,
            help=(
                "With --once, exit with 1 if a writer has accepted (in a store, committed) no record for longer than "
                "this, even if it still reports."
            ),
        ),
    ] = None,
    storage_option: StorageOptions = None,
    json: Json = False,
    debug: Debug = False,
) -> int:
    """Show the progress of a crawl: records and bytes per second, shards, writers and what they are waiting for, and
    records that are not yet safe.

    The command reads the manifest and the status files that writers keep on disk, and writes nothing. In a store, it
    shows the age of each writer's last commit. Press Ctrl-C to stop. With --json, each report is one line. For cron,
    use --once --max-age 60 --idle 600.

    \b
    Example:
      asyncrec watch demo-data/pages --once
    """
    if not once and (max_age is not None or idle is not None):
        raise UsageError("--max-age and --idle set the exit code and need --once")
    options = parse_options(storage_option)
    view = _Lines() if json else _Screen(moving=not once)
    try:
        with view.shown():
            run_async(lambda: _look(path, view, every, once, by, options))
    except KeyboardInterrupt:
        if once:
            raise
    report = view.last
    old = report.older_than(max_age) if max_age is not None and report is not None else ()
    idlers = report.idle_for(idle) if idle is not None and report is not None else ()
    for writer in dict.fromkeys((*old, *idlers)):
        if writer.status is not None:
            told = f"last reported {writer.quiet:.0f} s ago"
        else:
            told = "has committed nothing" if writer.last_commit is None else f"committed {writer.quiet:.0f} s ago"
        risk = f", its oldest record that is not yet safe is {writer.at_risk:.0f} s old" if writer.at_risk else ""
        took = f"; it has accepted no record for {writer.idle:.0f} s" if writer in idlers and writer.status else ""
        complain(
            f"the writer {writer.id} (process {writer.pid} on {writer.host}) is {writer.state}: {told}{risk}{took}"
        )
    return DAMAGE if old or idlers else FINE


async def _look(
    path: str, view: _View, every: float | None, once: bool, by: str | None, options: dict[str, object] | None
) -> None:
    import anyio

    from asyncrec import tools
    from asyncrec.errors import TransientStorageError

    if once:
        view.show(await tools.watch(path, by=by, storage_options=options))
        return
    async with tools.open_watch(path, by=by, storage_options=options) as watch:
        pause = every or (_EVERY_REMOTE if watch.remote else _EVERY)
        while True:
            try:
                view.show(await watch.look())
            except TransientStorageError as error:  # the next attempt may succeed
                complain(str(error))
            await anyio.sleep(pause)


class _View:
    """A way to show reports.

    Attributes:
        last: the last report that was shown.
    """

    last: WatchReport | None = None

    def show(self, report: WatchReport) -> None:
        raise NotImplementedError

    @contextmanager
    def shown(self) -> Iterator[None]:
        yield


class _Lines(_View):
    """Prints each report as a line of JSON."""

    def show(self, report: WatchReport) -> None:
        print_json(report.to_json())
        self.last = report
        sys.stdout.flush()


class _Screen(_View):
    """Overwrites the screen with each report or, if stdout is not a terminal, prints the reports one after another."""

    def __init__(self, *, moving: bool) -> None:
        self._moves = moving and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"

    @contextmanager
    def shown(self) -> Iterator[None]:
        if not self._moves:
            yield
            return
        sys.stdout.write(_OTHER_SCREEN)
        try:
            yield
        finally:
            sys.stdout.write(_BACK)
            if self.last is not None:  # leave the last report on the terminal
                self._print(self.last)

    def show(self, report: WatchReport) -> None:
        if not self._moves:
            if self.last is not None:
                say()
            self._print(report)
        else:
            from asyncrec.cli._watch_screen import screen

            size = shutil.get_terminal_size()
            lines = screen(report, size.columns, size.lines)
            sys.stdout.write(_HOME + "\n".join(line + _END_OF_LINE for line in lines) + _BELOW)
        self.last = report
        sys.stdout.flush()

    def _print(self, report: WatchReport) -> None:
        from asyncrec.cli._watch_screen import screen

        columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else 200
        for line in screen(report, columns, 1000):
            say(line)
