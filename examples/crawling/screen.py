"""What a person sees of the crawl: a progress bar while it runs, a table when it is done.

The bar goes to standard error, and only to a terminal; the table goes to standard output. All that is known here of
asyncrec is the shape of a shard: ``path``, ``records`` and ``bytes``.
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

HEARTBEAT = 0.005  # seconds: short against the 20 ms that would be noticed, long enough to cost nothing
SHARDS_SHOWN = 12


class Shard(Protocol):
    """What is shown of a shard."""

    @property
    def path(self) -> str: ...
    @property
    def records(self) -> int: ...
    @property
    def bytes(self) -> int: ...


@dataclass
class Tally:
    """What this run did so far; filled by the crawl, shown by the screen.

    Attributes:
        pages, bytes: written, and the length of their bodies.
        shards: committed.
        missed: pages not had, by reason.
        seconds: from the first request to the end of the writer's context.
        before: pages that were there when it began.
        longest_hold: seconds of processor time for which the event loop was held, at worst: waiting for a processor, on
            a machine with more to do than it has, is not the loop's doing, and is not counted.
    """

    pages: int = 0
    bytes: int = 0
    shards: list[Shard] = field(default_factory=list)
    missed: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    before: int = 0
    longest_hold: float = 0.0

    async def watch_the_loop(self) -> None:
        """Note for how long the event loop was held, at worst: how late a short sleep ends, but no longer than its
        thread has worked meanwhile. Runs until cancelled."""
        while True:
            before, worked = time.perf_counter(), time.thread_time()
            await anyio.sleep(HEARTBEAT)
            late = time.perf_counter() - before - HEARTBEAT
            self.longest_hold = max(self.longest_hold, min(late, time.thread_time() - worked))


@contextmanager
def progress_bar(what: str, total: int, tally: Tally) -> Iterator[None]:
    """Show ``tally`` as it grows towards ``total`` pages, while the context lasts."""
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
            # The bar reads the tally when it draws itself, from its own thread: nothing to be told per page.
            for task in self.tasks:
                task.completed = tally.pages
                task.fields.update(size=decimal(tally.bytes), rate=tally.pages / seconds if seconds > 0 else 0)
            yield self.make_tasks_table(self.tasks)

    began = time.perf_counter()
    with Bar(*columns, console=console, transient=True, expand=True, disable=not console.is_terminal) as bar:
        bar.add_task(what, total=total, size=decimal(0), rate=0.0)
        yield


def show_report(tally: Tally, dataset: str, shards: Sequence[Shard], *, sizes: str, seconds: float) -> None:
    """Print what the data set holds, how the run went, and that all of it was read back, in ``seconds``.

    ``sizes`` says why the shards have the sizes that they have.
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
        facts.add_row("Before", f"{count(tally.before, 'page')}, which an earlier run wrote")
    if tally.missed:
        facts.add_row("Left out", missed(tally))
    facts.add_row("Shards", sizes)
    facts.add_row("Event loop", f"held for {tally.longest_hold * 1e3:,.0f} ms at the longest, of processor time")
    facts.add_row("Peak memory", decimal(peak_memory()))
    records = sum(shard.records for shard in shards)
    facts.add_row(
        "Read back",
        f"{count(records, 'record')} in {seconds:,.1f} s, each checksum right, as many as the manifest says",
    )
    Console().print(shard_table(dataset, shards), facts, "")


def show_next(dataset: str) -> None:
    """Print three commands to go on with, as they are typed in this folder."""
    command = Path(sys.executable).with_name("asyncrec")
    typed = command.relative_to(Path.cwd()) if command.is_relative_to(Path.cwd()) else command.name
    lines = {
        f"head {dataset} -n 2": "the first records",
        f"count {dataset} --by content_type": "how many of each kind",
        f"report {dataset}": "one page to look at, report.html",
    }
    print("Next:")
    for arguments, what in lines.items():
        print(f"  {typed} {arguments:<{max(map(len, lines))}}  # {what}")


def show_stop(tally: Tally, dataset: str, by: str) -> None:
    """Print what a run that was ended by a signal left behind."""
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
    """The pages not had, by reason, the most frequent first."""
    return ", ".join(f"{times:,} ({reason})" for reason, times in tally.missed.most_common())


def shard_table(dataset: str, shards: Sequence[Shard]) -> Table:
    """The shards, their records and sizes; of many, the last few and the sum."""
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
    """The most memory this process has held, in bytes. Linux counts in KiB, macOS in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
