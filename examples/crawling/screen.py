"""The output of the crawl: a progress bar while it runs, and a table at the end.

The bar is written to standard error if that is a terminal, the table to standard output. The only part of asyncrec that
this module relies on is the attributes of a shard: ``path``, ``records`` and ``bytes``.
"""

from __future__ import annotations

import resource
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import anyio
from rich import box
from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn
from rich.table import Table

HEARTBEAT = 0.005  # seconds: much shorter than a noticeable delay of 20 ms, and long enough to cost almost nothing
SHARDS_SHOWN = 12


class Shard(Protocol):
    """The attributes of a shard that are shown."""

    @property
    def path(self) -> str: ...
    @property
    def records(self) -> int: ...
    @property
    def bytes(self) -> int: ...


@dataclass
class Tally:
    """The progress of this run. The crawl updates it, and this module shows it.

    Attributes:
        pages: the number of pages written.
        bytes: the total length of their bodies.
        shards: the committed shards.
        missed: the number of pages that were not fetched, by reason.
        seconds: the time from the first request to the end of the writer's context.
        before: the number of pages that earlier runs stored.
        longest_hold: the longest time for which the event loop was held, in seconds of processor time. Waiting for a
            processor on a busy machine does not count.
    """

    pages: int = 0
    bytes: int = 0
    shards: list[Shard] = field(default_factory=list)
    missed: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    before: int = 0
    longest_hold: float = 0.0

    async def watch_the_loop(self) -> None:
        """Measure `longest_hold` until cancelled: the delay of a short sleep, limited to the processor time that the
        thread used during the sleep."""
        while True:
            before, worked = time.perf_counter(), time.thread_time()
            await anyio.sleep(HEARTBEAT)
            late = time.perf_counter() - before - HEARTBEAT
            self.longest_hold = max(self.longest_hold, min(late, time.thread_time() - worked))


@contextmanager
def progress_bar(what: str, total: int, tally: Tally) -> Iterator[None]:
    """Show the progress of ``tally`` towards ``total`` pages while the context is open."""
    console = Console(stderr=True)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f} pages"),
        TextColumn("[dim]{task.fields[size]} · {task.fields[rate]:,.0f}/s"),
    )

    class Bar(Progress):
        def get_renderables(self) -> Iterable[Table]:
            seconds = time.perf_counter() - began
            # The bar's thread reads the tally each time it redraws, so the crawl need not report each page.
            for task in self.tasks:
                task.completed = tally.pages
                task.fields.update(size=decimal(tally.bytes), rate=tally.pages / seconds if seconds > 0 else 0)
            yield self.make_tasks_table(self.tasks)

    began = time.perf_counter()
    with Bar(*columns, console=console, transient=True, expand=True, disable=not console.is_terminal) as bar:
        bar.add_task(what, total=total, size=decimal(0), rate=0.0)
        yield


def show_report(tally: Tally, dataset: str, shards: Sequence[Shard], *, sizes: str, seconds: float) -> None:
    """Print the shards of the data set, the figures of this run, and the ``seconds`` that reading back took.

    ``sizes`` explains the sizes of the shards.
    """
    facts = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    facts.add_column(style="bold", no_wrap=True)
    facts.add_column(overflow="fold")
    if tally.pages:
        facts.add_row("Crawled", f"{count(tally.pages, 'page')}, {decimal(tally.bytes)}, in {tally.seconds:,.1f} s")
        facts.add_row(
            "Speed", f"{tally.pages / tally.seconds:,.0f} pages/s, {decimal(int(tally.bytes / tally.seconds))}/s"
        )
    else:
        facts.add_row("Crawled", "nothing new")
    if tally.before:
        facts.add_row("Before", f"{count(tally.before, 'page')}, from earlier runs")
    if tally.missed:
        facts.add_row("Left out", missed(tally))
    facts.add_row("Shards", sizes)
    facts.add_row("Event loop", f"held for at most {tally.longest_hold * 1e3:,.0f} ms of processor time")
    facts.add_row("Peak memory", decimal(peak_memory()))
    records = sum(shard.records for shard in shards)
    facts.add_row(
        "Read back",
        f"{count(records, 'record')} in {seconds:,.1f} s, checksums correct, as many as the manifest says",
    )
    Console().print(shard_table(dataset, shards), facts, "")


def show_next(dataset: str) -> None:
    """Print three commands to try next, as typed in the current folder."""
    command = Path(sys.executable).with_name("asyncrec")
    typed = command.relative_to(Path.cwd()) if command.is_relative_to(Path.cwd()) else command.name
    lines = {
        f"head {dataset} -n 2": "the first records",
        f"count {dataset} --by content_type": "the number of records of each type",
        f"report {dataset}": "an overview in report.html",
    }
    print("Next:")
    for arguments, what in lines.items():
        print(f"  {typed} {arguments:<{max(map(len, lines))}}  # {what}")


def show_stop(tally: Tally, dataset: str, by: str) -> None:
    """Print what a run committed before a signal ended it."""
    console = Console()
    records = sum(shard.records for shard in tally.shards)
    console.print(
        f"\n[bold]Ended by {by} after {count(tally.pages, 'page')}.[/] Committed: {count(records, 'record')}."
    )
    if tally.shards:
        console.print(shard_table(dataset, tally.shards))
    console.print("The same command continues from here.")


def count(number: int, what: str) -> str:
    """``1 page``, ``2,000 pages``."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def missed(tally: Tally) -> str:
    """The number of pages not fetched, by reason, the most frequent first."""
    return ", ".join(f"{times:,} ({reason})" for reason, times in tally.missed.most_common())


def shard_table(dataset: str, shards: Sequence[Shard]) -> Table:
    """The shards with their records and sizes. A long list is shortened to the last few shards and the total."""
    table = Table(title=dataset, title_justify="left", box=box.SIMPLE_HEAD, show_footer=True, pad_edge=False)
    table.add_column("Shard", "total", overflow="fold")
    table.add_column("Records", f"{sum(shard.records for shard in shards):,}", justify="right", no_wrap=True)
    table.add_column("Size", decimal(sum(shard.bytes for shard in shards)), justify="right", no_wrap=True)
    hidden = shards[: max(0, len(shards) - SHARDS_SHOWN)]
    if hidden:
        table.add_row(
            f"[dim]{len(hidden):,} earlier shards",
            f"[dim]{sum(shard.records for shard in hidden):,}",
            f"[dim]{decimal(sum(shard.bytes for shard in hidden))}",
        )
    for shard in shards[len(hidden) :]:
        table.add_row(shard.path, f"{shard.records:,}", decimal(shard.bytes))
    return table


def peak_memory() -> int:
    """The peak memory of this process in bytes. Linux reports KiB, macOS bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
