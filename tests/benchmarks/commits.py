"""``make bench ARGS="--only commits"``: many writers commit to one data set, like delta-rs, PyIceberg and Lance.

The store (`kept_s3`) is a separate process that responds to each request after 20 ms. 1, 10, 100 and 1,000 writers make
20 commits each, of ten records of 100 bytes. asyncrec's writers are tasks of one process, which share a client; those
of the others (`commit_peers`) are threads of up to four processes, with a client each. All writers are open before the
clock starts. A row that takes longer than ten minutes is cut off, and shows how far it got. Two more rows are paced:
each of asyncrec's writers starts a commit every two seconds, so that it does not wait for the machine.

    made       commits reported to callers as successful, of those requested
    failed     commits that raised an error
    tries      puts of the object that makes a commit, per successful commit; those that lost a race are counted, too
    asked      requests per successful commit: all of them, including those of failed tries
    behind     sequential requests of one writer (each begun after another ended) per commit, successful or failed
    p50, p99   milliseconds of a commit, successful or failed
    a second   successful commits, by the clock
    busy       the share of one processor that the store used, and the share that all writers used
    opened     a fresh process opens the data set and counts its records: milliseconds (including making its client,
               but not imports), requests, and how many of these were sequential
    lost       records that were acknowledged and are missing; twice: records stored more than once; unasked:
               records that are stored although the caller was told that their commit failed

    make bench ARGS="--only commits"
    make bench ARGS="--only commits --writers 10 --contender asyncrec --minutes 1"      some seconds

The exit status is 1 if one of asyncrec's commits failed or a record is lost, and otherwise 0, whatever the speed: a
benchmark on a busy machine is not a test.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from commit_peers import PEERS, Place
from commit_writers import OURS, Race, batch
from harness import work_folder
from kept_s3 import kept_s3

WRITERS = str(Path(__file__).with_name("commit_writers.py"))
PROCESSES = 4
# A process that is open, or has no more to commit, responds within this many seconds.
PATIENCE = 300.0


def ask(place: Place, query: str) -> Any:
    with urllib.request.urlopen(f"{place.endpoint}/?{query}") as answer:
        return json.loads(answer.read() or b"null")


def run(what: str, race: Race) -> Any:
    command = [sys.executable, WRITERS, what]
    done = subprocess.run(
        command, input=json.dumps(asdict(race)), capture_output=True, text=True, check=False, timeout=600
    )
    if done.returncode:
        raise RuntimeError(f"{race.contender} cannot {what}: {done.stderr.strip()[-1500:]}")
    return json.loads(done.stdout.strip().splitlines()[-1]) if done.stdout.strip() else None


class Writers:
    """The processes of a row, and their output."""

    def __init__(self, races: list[Race]) -> None:
        self.said: list[list[Any]] = []
        self.news = threading.Condition()
        self.processes = []
        for race in races:
            process = subprocess.Popen(
                [sys.executable, WRITERS, "write"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, text=True,
            )  # fmt: skip
            self.processes.append(process)
            self.tell(process, json.dumps(asdict(race)))
            threading.Thread(target=self._listen, args=(process,), daemon=True).start()

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            with self.news:
                self.said.append(json.loads(line))
                self.news.notify_all()

    def tell(self, process: subprocess.Popen[str], line: str = "") -> None:
        assert process.stdin is not None
        process.stdin.write(f"{line}\n")
        process.stdin.flush()

    def heard(self, word: str, seconds: float) -> bool:
        """Return whether every process prints ``word`` within this many seconds."""

        def all_said() -> bool:
            return [said[0] for said in self.said].count(word) == len(self.processes)

        with self.news:
            return self.news.wait_for(all_said, seconds)

    def go(self) -> None:
        for process in self.processes:
            self.tell(process)

    def end(self, *, kill: bool) -> None:
        for process in self.processes:
            if kill:
                process.kill()
            elif process.poll() is None:
                with contextlib.suppress(BrokenPipeError):
                    self.tell(process)
        for process in self.processes:
            process.wait(PATIENCE)


def raced(contender: str, writers: int, commits: int, every: float, options: argparse.Namespace) -> dict[str, Any]:
    """Run one row, and return its figures."""
    folder, _ = work_folder()
    processes = 1 if contender == OURS else min(PROCESSES, writers)
    shares = [range(writers)[at::processes] for at in range(processes)]
    tries = PEERS[contender].tries if contender in PEERS else r"_manifest/.*race\d+-\d+\.jsonl$"
    with kept_s3(options.delay_ms / 1000) as url:
        place = Place(url, str(folder))
        firsts = [sum(len(share) for share in shares[:at]) for at in range(processes)]
        races = [
            Race(contender, place, first, len(share), commits, every)
            for first, share in zip(firsts, shares, strict=True)
        ]
        try:
            run("create", races[0])
            group = Writers(races)
            try:
                if not group.heard("ready", PATIENCE):
                    raise RuntimeError(f"{writers} writers did not open within {PATIENCE:g} s")
                ask(place, f"reset={urllib.parse.quote(tries)}")
                began = time.perf_counter()
                group.go()
                cut = not group.heard("done", options.minutes * 60)
                seconds = time.perf_counter() - began
                counts = ask(place, "counts")
            except BaseException:
                group.end(kill=True)
                raise
            said = list(group.said)
            group.end(kill=cut)
            ask(place, "reset=$^")
            counted, opened = run("count", races[0])
            opening = ask(place, "counts")
            ask(place, "delay=0")
            found = run("read", races[0])[0]
        finally:
            shutil.rmtree(folder)
    figures = {
        "contender": contender, "writers": writers, "wanted": writers * commits, "every": every, "cut": cut,
        "seconds": seconds, "counts": counts, "counted": counted, "opened": opened, "opening": opening,
        "cpu": sum(each[1] for each in said if each[0] == "done"),
    }  # fmt: skip
    return figures | judged([each[1:] for each in said if each[0] == "told"], found)


def judged(told: list[list[Any]], found: dict[str, int]) -> dict[str, Any]:
    """Compare the outcomes reported to callers with the stored records."""
    names: dict[bool, set[str]] = {True: set(), False: set()}
    for writer, number, _, error in told:
        names[not error].update(record.rstrip(b".").decode() for record in batch(writer, number))
    times = sorted(seconds for _, _, seconds, _ in told) or [0.0]
    return {
        "made": sum(not error for *_, error in told),
        "failed": Counter(re.sub(r"\d{6,}", "N", error)[:160] for *_, error in told if error).most_common(3),
        "failures": sum(bool(error) for *_, error in told),
        "p50": times[len(times) // 2],
        "p99": times[min(len(times) - 1, int(len(times) * 0.99))],
        "lost": len(names[True] - found.keys()),
        "twice": sum(count > 1 for count in found.values()),
        "unasked": len(names[False] & found.keys()),
    }


HEAD = (
    f"  {'':12} {'made':>14} {'failed':>7} {'tries':>6} {'asked':>7} {'behind':>7} {'p50 ms':>8} {'p99 ms':>8}"
    f" {'a second':>8} {'busy':>12}   {'opened':<26} lost / twice / unasked"
)


def row(each: dict[str, Any]) -> str:
    counts, opening = each["counts"], each["opening"]
    made, ended = max(each["made"], 1), max(each["made"] + each["failures"], 1)
    behind = sum(depth for of, depth in counts["depths"].items() if of != "all") / ended
    busy = f"{counts['cpu'] / each['seconds']:.0%}" + ("" if each["cut"] else f", {each['cpu'] / each['seconds']:.0%}")
    opened = f"{each['opened'] * 1e3:,.0f} ms, {sum(opening['requests'].values()):,}, {opening['depths']['all']}"
    lines = [
        f"  {each['contender']:12} {each['made']:>7,}/{each['wanted']:<6,} {each['failures']:7,}"
        f" {counts['tries'] / made:6.2f} {sum(counts['requests'].values()) / made:7.1f} {behind:7.1f}"
        f" {each['p50'] * 1e3:8,.0f} {each['p99'] * 1e3:8,.0f} {each['made'] / each['seconds']:8.1f} {busy:>12}   "
        f"{opened:<26} {each['lost']:,} / {each['twice']:,} / {each['unasked']:,}"
    ]
    if each["cut"]:
        lines.append(f"  {'':12} cut off after {each['seconds']:.0f} s")
    lines += [f"  {'':12} {count:,} times: {error}" for error, count in each["failed"]]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="commits", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--writers", type=int, action="append", metavar="N", help="1, 10, 100 and 1,000")
    parser.add_argument("--contender", action="append", metavar="TEXT", help="contenders whose name holds TEXT")
    parser.add_argument("--commits", type=int, default=20, metavar="N", help="of each writer (%(default)s)")
    parser.add_argument("--paced", action="store_true", help="only the two rows that are paced")
    parser.add_argument("--minutes", type=float, default=10.0, help="a row is cut off then (%(default)s)")
    parser.add_argument("--delay-ms", type=float, default=20.0)
    parser.add_argument("--json", metavar="FILE", help="all figures, a line for each row")
    options = parser.parse_args()
    os.environ["NO_PROXY"] = "127.0.0.1"
    installed = [
        OURS,
        *(name for name, peer in PEERS.items() if importlib.util.find_spec(peer.modules[0].partition(".")[0])),
    ]
    picked = [name for name in installed if any(text in name for text in options.contender or [""])]
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    distributions = [PEERS[name].distribution if name in PEERS else name for name in picked]
    print(", ".join(f"{name} {importlib.metadata.version(name)}" for name in distributions))
    rows = [
        (name, writers, options.commits, 0.0)
        for writers in ([] if options.paced else options.writers or [1, 10, 100, 1000])
        for name in picked
    ]
    if options.paced or (options.writers is None and OURS in picked):
        # One writer makes enough commits that the slowest in a hundred is not the slowest of all.
        rows += [(OURS, 1, 5 * options.commits, 2.0), (OURS, 100, options.commits, 2.0)]
    bad, before = False, (0, 0.0)
    for name, writers, commits, every in rows:
        if (writers, every) != before:
            before = (writers, every)
            print(f"\n{writers:,} writers, {commits} commits each" + (f", one every {every:g} s" if every else ""))
            print(HEAD, flush=True)
        try:
            each = raced(name, writers, commits, every, options)
        except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
            print(f"  {name:12} FAILED: {error}", flush=True)
            bad |= name == OURS
            continue
        print(row(each), flush=True)
        bad |= name == OURS and bool(each["failures"] or each["lost"] or each["twice"])
        if options.json:
            with Path(options.json).open("a", encoding="utf-8") as file:
                file.write(f"{json.dumps(each)}\n")
    print(f"\nload at the end {os.getloadavg()[0]:.1f}")
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
