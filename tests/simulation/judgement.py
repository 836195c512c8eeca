"""Judge the data sets, files and leftovers of a world, by comparing them with its book, and report broken promises."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from asyncrec._shards.writing.keys import NO_KEY, key_digest

from . import contents
from .book import Record, Run, identity

# The files that `DatasetWriter` stores in a folder next to the splits.
_DATUM = ("shard_info.json", "datum_to_type_and_shape_mapping.json")

# A silence shorter than this proves nothing, because a single request may take that long.
_LEAST_JUDGED = 10.0

__all__ = ["of_dataset", "of_endings", "of_file", "of_leftovers", "wrong_keys"]


def of_dataset(world: Any, path: str, shards: list[contents.Shard]) -> None:
    book, runs = world.book, world.book.of(path)
    for shard in shards:
        for problem in shard.problems:
            book.complain("what a manifest names is there, as it says", problem)
    found = [identity(record) for shard in shards for record in shard.records]
    counts = Counter(found)
    made = [run for run in runs if "expects" in run.spec]
    if made:
        _of_target(world, path, made, counts)
        return
    for number, times in counts.items():
        if number is None or number >= len(book.records) or book.records[number].run.target != path:
            book.complain("nothing else is there", f"{path}: record {number}")
        elif times > 1:
            book.complain("each record is there once", f"{path}: record {number} {times} times")
        elif book.records[number].state in ("refused", "dropped"):
            book.complain("nothing that was refused is there", f"{path}: record {number}")
    if any(None is number or number >= len(book.records) for number in counts):
        return
    for shard in shards:
        for data in shard.records:
            record = book.records[identity(data) or 0]
            if record.data not in data:
                book.complain("a record comes back as it was written", f"{path}: record {record.number}")
    keys_there = {book.records[number].key for number in counts}
    for run in runs:
        for record in run.records:
            deleted = book.may_be_deleted(record)
            if record.number not in counts and not deleted and _must_be_there(runs, run, record):
                book.complain("what was acknowledged stays", f"{path}: {_describe(run, record)}")
            if record.number in counts and _must_be_gone(runs, run, record):
                book.complain("what replaces is the whole data set", f"{path}: {_describe(run, record)} is still there")
            if record.number in counts and book.must_be_deleted(record):
                book.complain("what was deleted is not found", f"{path}: {_describe(run, record)}")
            unknown = (
                record.state == "dropped"
                and run.outcome == "clean"
                and record.key not in keys_there
                and not any(record.key in deletion.keys for deletion in book.deletions)
            )
            if unknown and not _replaced(runs, run):
                book.complain("what is dropped as known is there", f"{path}: key {record.key!r}")
    _all_or_nothing(book, path, runs, counts)
    for problem in wrong_keys(world, shards):
        book.complain("a record has its key", f"{path}: {problem}")
    _in_order(book, shards, damaging=world.settings["damaging"] > 0)


def of_endings(world: Any, path: str) -> None:
    """Check that no working writer to a responsive store was declared dead, even if clocks are wrong."""
    said = any("gives_up" in spec for process in world.plan["processes"] for spec in process["operations"])
    if said or world.power_cuts or not world.store_answers:
        return
    for run in world.book.of(path):
        times = run.spec.get("options", {}).get("dead_after", _LEAST_JUDGED)
        if (
            run.process is None
            or run.outcome != "clean"
            or run.process.was_held
            or times < _LEAST_JUDGED
            or not run.flushes_to_store
        ):
            continue
        folder, _, name = path.rpartition("/")
        log = f"_flush/{name}/{run.writer}-"
        if any(key.startswith(log) and contents.FENCE in data for key, data in contents.tree(world, folder).items()):
            world.book.complain("a writer that goes on is not taken for dead", f"{path}: {run.process}")


def _describe(run: Run, record: Record) -> str:
    promised = (
        "committed" if record.committed is not None else "spooled" if record.spooled is not None else record.state
    )
    return f"record {record.number} ({promised}) of run {run.number} ({run.kind}, {run.outcome}, {run.process})"


def _may_have_committed(run: Run) -> bool:
    return run.leaving is not None or run.spec.get("options", {}).get("on_error") == "commit"


def _replaced(runs: list[Run], run: Run) -> bool:
    """Return whether another run that replaced the data set may have seen and removed the records of this run."""
    return any(
        other is not run
        and other.replaces
        and _may_have_committed(other)
        # A tool reads the data set at some unknown time after it was called.
        and (run.replaces or other.opened is None or other.kind == "whole" or run.asked <= other.opened)
        for other in runs
    )


def _must_be_there(runs: list[Run], run: Run, record: Record) -> bool:
    if record.state != "taken":
        return False
    if run.replaces:
        # The last run that ended cleanly must have the record, unless another may have committed afterwards.
        later = [other for other in runs if other is not run and other.replaces and _may_have_committed(other)]
        return run.outcome == "clean" and all(other.ended is not None and other.ended < run.asked for other in later)
    if _replaced(runs, run):
        return False
    if run.outcome == "clean":
        return True
    if run.given_up or (run.kind == "fixed" and any(_takes_over(other) for other in runs if other is not run)):
        return record.committed is not None  # an operator has accepted the loss of uncommitted records
    return record.promised or record.reached


def _takes_over(run: Run) -> bool:
    return bool(run.spec.get("options", {}).get("take_over"))


def _must_be_gone(runs: list[Run], run: Run, record: Record) -> bool:
    """Return whether a run that began after this one had ended cleanly has replaced the data set."""
    if run.outcome != "clean" or run.ended is None:
        return False
    return any(
        other.replaces and other.outcome == "clean" and other.asked > run.ended for other in runs if other is not run
    )


def _all_or_nothing(book: Any, path: str, runs: list[Run], counts: Counter[Any]) -> None:
    whole = []
    for run in runs:
        if run.kind not in ("fixed", "whole") and not (run.replaces and run.kind == "rolling"):
            continue
        there = [record for record in run.records if record.number in counts]
        if not there:
            continue
        whole.append(run)
        missing = [
            record
            for record in run.records
            if record.state == "taken" and record.number not in counts and not book.may_be_deleted(record)
        ]
        # If the process of a fixed set died, `recover` keeps all records of any flush whose caller got, or was about
        # to get, a response, and any other complete records. Every flush covers at least the records of the first one.
        kept = run.first_flush if run.kind == "fixed" and not run.replaces and run.outcome != "clean" else None
        broken = [record for record in missing if record.promised or kept is None or record in kept]
        if broken:
            book.complain("a fixed set is whole or absent", f"{path}: {_describe(run, broken[0])} is missing")
    _once_by_id(book, path, runs, whole)
    if len([run for run in whole if run.kind == "fixed" and not run.replaces]) > 1:
        book.complain("one fixed set wins", f"{path}: runs {[run.number for run in whole]} are both there")
    if len([run for run in whole if run.replaces]) > 1:
        book.complain("one that replaces wins", f"{path}: runs {[run.number for run in whole]} are both there")
    ended = [run for run in runs if run.kind == "fixed" and not run.replaces and run.outcome == "clean"]
    if len(ended) > 1 and not any(run.replaces for run in runs):
        book.complain("one fixed set wins", f"{path}: runs {[run.number for run in ended]} both ended well")


def _once_by_id(book: Any, path: str, runs: list[Run], whole: list[Run]) -> None:
    """Check that exactly one run with a joint job's id has committed, if any of them has ended cleanly."""
    of_id = [run for run in runs if run.spec.get("options", {}).get("job_id")]
    there = [run for run in whole if run in of_id]
    if len(there) > 1:
        book.complain("an id commits once", f"{path}: runs {[run.number for run in there]} are both there")
    ended = [run for run in of_id if run.outcome == "clean"]
    if ended and not there and not any(run.replaces and run not in of_id for run in runs):
        book.complain("what was acknowledged stays", f"{path}: nothing of run {ended[0].number}, which ended well")


def wrong_keys(world: Any, shards: list[contents.Shard]) -> list[str]:
    """Describe the records whose keys are wrong in their shards' keys files."""
    wrong = []
    records = world.book.records
    for shard in shards:
        for place, data in enumerate(shard.records):
            number = identity(data)
            if number is None or number >= len(records):
                continue
            key = records[number].key
            digest = NO_KEY if key is None or records[number].run.kind == "whole" else key_digest(key)
            has = NO_KEY if shard.keys is None else shard.keys[place] if place < len(shard.keys) else NO_KEY
            # After a power cut, the keys of records that were not promised may be missing.
            in_doubt = has == NO_KEY and world.power_cuts and not records[number].promised
            if has != digest and not in_doubt:
                wrong.append(f"{shard.path}: record {number} at {place} has {has.hex()[:8]}, not {digest.hex()[:8]}")
    return wrong


def _in_order(book: Any, shards: list[contents.Shard], *, damaging: bool) -> None:
    """Check that each task's records are in order within a shard and, if one is open at a time, across shards.

    If the store has damaged a shard, its recovered records come after all others of the same log.
    """
    last: dict[tuple[str, int, int], int] = {}
    parts = [part for shard in sorted(shards, key=lambda shard: shard.path) for part in shard.parts()]
    for path, records in parts:
        for data in records:
            number = identity(data)
            if number is None or number >= len(book.records):
                continue
            record = book.records[number]
            if record.run.kind == "whole" or record.state != "taken":
                continue
            # If a writer was ended and continues in a new log, that log's id does not necessarily sort after the first.
            log = path.rpartition("-")[0]
            log = log if damaging else log.partition(".")[0]
            where = log if record.run.one_shard else path
            place = (where, record.run.number, record.task)
            if record.ticket <= last.get(place, 0):
                book.complain("the order of a task is kept", f"{path}: record {number}")
            last[place] = record.ticket


def _of_target(world: Any, path: str, made: list[Run], counts: Counter[Any]) -> None:
    base, count, _ = made[0].spec["expects"]
    wanted = set(range(base, base + count))
    twice = [number for number, times in counts.items() if times > 1]
    what = f"{path} by {made[0].spec['tool']}: {sum(counts.values())} records, {len(counts)} distinct, of {count}"
    if twice:
        world.book.complain("each record is there once", what)
    if set(counts) - wanted:
        world.book.complain("nothing else is there", what)
    if wanted - set(counts) and any(run.outcome == "clean" for run in made):
        world.book.complain("what a tool has done is done", what)


def of_file(world: Any, path: str, files: dict[str, bytes]) -> None:
    book, runs = world.book, world.book.of(path)
    name = path.rpartition("/")[2]
    data = files.get(name)
    made = [run for run in runs if "expects" in run.spec]
    kind = next((run.spec["compression"] for run in runs if "compression" in run.spec), "")
    try:
        found = [identity(record) for record in contents.frames(data, kind)] if data is not None else []
    except contents.Broken as error:
        book.complain("a file is whole", f"{path}: {error}")
        return
    if made:
        _of_target(world, path, made, Counter(found))
        return
    by_run: dict[int, list[int]] = defaultdict(list)
    for number in found:
        if number is None or number >= len(book.records) or book.records[number].run.target != path:
            book.complain("nothing else is there", f"{path}: record {number}")
            return
        record = book.records[number]
        by_run[record.run.number].append(record.ticket)
        if record.state == "refused":
            book.complain("nothing that was refused is there", f"{path}: record {number}")
    if len(found) != len(set(found)):
        book.complain("each record is there once", path)
    continued = any(run.spec.get("mode") == "a" for run in runs)
    if world.settings["lax"] and not path.startswith("/") and len(runs) > 1:
        return  # such a store does not decide which of several multipart uploads came first
    if not continued and len(by_run) > 1:
        book.complain("a file is one writer's", f"{path}: runs {sorted(by_run)}")
    for run in runs:
        there = set(found)
        clean_later = any(other.replaces and other is not run and other.leaving is not None for other in runs)
        for record in run.records:
            if record.state != "taken" or record.number in there:
                continue
            stays = record.promised if continued else run.outcome == "clean" and not clean_later
            if stays:
                book.complain("what was acknowledged stays", f"{path}: {_describe(run, record)}")
        if not continued and run.number in by_run and run.leaving is None:
            book.complain("a file appears whole, or not", f"{path}: run {run.number} never left its context")


def of_leftovers(world: Any, manifests: dict[str, Any], spools: list[str]) -> None:
    """Check that every leftover object would be removed by some command."""
    from asyncrec._shards.journal.flush_entry import parse_flush_entry
    from asyncrec._shards.manifest.names import begin_of, segment_of
    from asyncrec._shards.manifest.segment import parse_segment
    from asyncrec._shards.ownership.marks import Claim

    folders: dict[str, list[str]] = defaultdict(list)
    for path in manifests:
        folder, _, name = path.rpartition("/")
        folders[folder].append(name)
    for folder, names in folders.items():
        files = contents.tree(world, folder)
        kept = set()
        for name in names:
            below = {key: data for key, data in files.items() if key.startswith(f"_manifest/{name}/")}
            segments = [
                parse_segment(data, name=key) for key, data in below.items() if segment_of(key.rpartition("/")[2])
            ]
            kept |= {key for key in below if not begin_of(key.rpartition("/")[2]) and "/_claim-" not in key}
            ended = {segment.writer for segment in segments if segment.closed}
            given_up = {segment.writer for segment in segments if segment.abandoned}
            for key, data in files.items():
                # In a store, the claim of an abandoned job is kept, because its late requests forbid reusing names.
                # A claim that got no response when a writer was opened may also arrive late; the next claim settles it.
                if not folder.startswith("/") and key.startswith(f"_manifest/{name}/_claim-"):
                    claim = Claim.decode(data, 0)
                    if claim.writer not in ended or (claim.plain and claim.writer in given_up):
                        kept.add(key)
                # The fence of a writer that may be alive is kept, to block the writer's flushes permanently.
                entry = key.startswith(f"_flush/{name}/") and key.endswith(".frames")
                if entry and parse_flush_entry(data, name=key).fenced_by:
                    kept.add(key)
            if (manifest := manifests[f"{folder}/{name}"]) is not None:
                for entry in manifest.shards:
                    kept |= set(entry.objects)
        left = sorted(key for key in files if key not in kept and not key.endswith(_DATUM))
        if left:
            world.book.complain("nothing is left that nobody removes", f"{folder}: {left[:5]}")
    for spool in spools:
        left = sorted(key for key in contents.tree(world, spool) if key != ".asyncrec-spool")
        if left:
            world.book.complain("nothing is left that nobody removes", f"{spool}: {left[:5]}")
