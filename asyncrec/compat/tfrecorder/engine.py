"""TFRecorder's engine, which loads, splits and serializes examples in the caller's thread, one after another.

Therefore, ``load`` and the other methods may use objects that are bound to one thread, such as an sqlite3 connection.
Only the shards are written in a different thread, on the event loop of `asyncrec.blocking`. With ``concurrency`` above
1, the methods of several examples are called concurrently in threads, but the examples are still written in order.
"""

from __future__ import annotations

import inspect
import logging
import os
import re
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from functools import partial
from os import fspath
from typing import Any

from asyncrec._datasets.from_csv.csv_rows import csv_line
from asyncrec._datasets.from_csv.splitting import SplitPlan, SplitWriter, open_splits
from asyncrec.blocking._owner import Handle, as_context
from asyncrec.blocking._portal import current_portal
from asyncrec.compat.tfrecorder.helpers.marshaller import Example, Path
from asyncrec.errors import ArgumentTypeError, ArgumentValueError
from asyncrec.example._declared import DeclaredExample, IgnoreExample
from asyncrec.storage._prefixed import PrefixedStorage
from asyncrec.storage._registry import located
from asyncrec.storage._url import redact

__all__ = ["logger", "write_examples"]

logger = logging.getLogger("TFRecorder")  # the original name, for scripts that configure this logger

_SHOWN_ROW = 200
# TFRecorder adds this argument to the user's own when it calls `load` and `split`, and fails if they do not accept it.
_MAX_BYTES = "examples_tfrecord_file_max_size_in_bytes"
_BATCH_BYTES = 1 << 20
_BATCH_EXAMPLES = 256  # each example occupies the event loop for a few microseconds
_Made = tuple[list[bytes], str]  # the records and the CSV line of an example


def write_examples(
    path: Path,
    folders: Mapping[str, Sequence[DeclaredExample]],
    *,
    max_bytes: float,
    csv: bool,
    concurrency: int,
    kwargs: Mapping[str, Any],
) -> None:
    """Write each list of examples to the folder in ``path`` that its key names. The key ``""`` means ``path`` itself.

    All folders are published together at the end and replace the previous ones. After an exception, the folders are
    unchanged. Progress is logged to the logger ``TFRecorder``, and printed unless the program has configured logging.

    Raises:
        Exception: the error of an example's method, with a note that names the method and the example.
        StorageError: a store failed.
        ValueError: ``concurrency`` is less than 1.
        TypeError: a class declares no fields.
    """
    if not logger.hasHandlers():
        logger.addHandler(_ToStdout())
        logger.setLevel(logging.INFO)
    if concurrency < 1:
        raise ArgumentValueError(f"examples_concurrency={concurrency}: must be at least 1")
    kinds = {type(example) for examples in folders.values() for example in examples}
    for kind in kinds:
        if not kind.fields():
            raise ArgumentTypeError(f"{kind.__name__} has no field declared with @tfrecordable; declare at least one")
    more = {**kwargs, _MAX_BYTES: max_bytes}
    handed = {
        kind: tuple(more if _takes(method, _MAX_BYTES) else kwargs for method in (kind.load, kind.split))
        for kind in kinds
    }
    plans = [
        _plan(name, name or _base_name(path), {type(example) for example in examples} or kinds)
        for name, examples in folders.items()
    ]
    with _open(path, plans, max_bytes, csv) as splits:
        for number, (name, examples) in enumerate(folders.items()):
            logger.info("Saving %s tfrecords files for %d examples...", name or path, len(examples))
            logger.info("   %s of the examples will be saved in a csv file.", "Metadata" if csv else "No metadata")
            shown = f"{name or _base_name(path)!r}, example "
            jobs = (
                partial(_made, example, f"{shown}{index}", csv, *handed[type(example)])
                for index, example in enumerate(examples)
            )
            for batch in _batched(_told(_in_order(jobs, concurrency), len(examples))):
                splits.take(number, batch)


def _takes(method: Callable[..., Any], name: str) -> bool:
    """Return whether a method accepts an argument with this name. Return False if its signature is unknown."""
    try:
        parameters = inspect.signature(method).parameters
    except (TypeError, ValueError):
        return False
    return name in parameters or any(each.kind is each.VAR_KEYWORD for each in parameters.values())


def _made(
    example: DeclaredExample, where: str, csv: bool, for_load: Mapping[str, Any], for_split: Mapping[str, Any]
) -> _Made:
    """Process an example in TFRecorder's order: load, CSV row, split, serialize, release."""
    doing = "load"
    line = ""
    try:
        _settled(example.load(**for_load))
        if csv:
            doing = "to_csv_row"
            line = csv_line(_settled(example.to_csv_row()))
        doing = "split"
        parts: list[Any] = list(_settled(example.split(**for_split)))
        doing = "serialize_to_string"
        records = [_record(part) for part in parts]
        doing = "release"
        for each in {id(each): each for each in (*parts, example)}.values():
            _settled(each.release())
    except IgnoreExample as reason:
        logger.warning("%s: example skipped: %s", where, reason)
        return [], line
    except Exception as error:
        error.add_note(f"{where}{_row_of(example)}: {type(example).__name__}.{doing}")
        raise
    return records, line


def _row_of(example: DeclaredExample) -> str:
    """Return the example's row of `examples.csv` for an error message, or "" if that fails."""
    with suppress(Exception):
        return f", row {repr(_settled(example.to_csv_row()))[:_SHOWN_ROW]}"
    return ""


def _record(part: Any) -> bytes:
    record: bytes = part.serialize_to_string() if isinstance(part, Example) else part.encode()
    return record


def _settled(value: Any) -> Any:
    """Return the value or, if it is awaitable, the result of awaiting it."""
    if not inspect.isawaitable(value):
        return value

    async def settle() -> Any:
        return await value

    return current_portal().run(settle)


def _in_order(jobs: Iterable[Callable[[], _Made]], concurrency: int) -> Iterator[_Made]:
    """Yield the jobs' results in order. Run up to ``concurrency`` jobs at once in threads, and keep no more results."""
    if concurrency == 1:
        for job in jobs:
            yield job()
        return
    with ThreadPoolExecutor(concurrency, "tfrecorder") as pool:
        window: deque[Future[_Made]] = deque()
        try:
            for job in jobs:
                window.append(pool.submit(job))
                if len(window) >= concurrency:
                    yield window.popleft().result()
            while window:
                yield window.popleft().result()
        finally:
            for future in window:
                future.cancel()


def _batched(made: Iterable[_Made]) -> Iterator[list[_Made]]:
    """Yield the results in batches, because a switch to the event loop's thread costs as much as 100 small records."""
    batch: list[_Made] = []
    size = 0
    for each in made:
        batch.append(each)
        size += sum(map(len, each[0]))
        if size >= _BATCH_BYTES or len(batch) >= _BATCH_EXAMPLES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _told(made: Iterable[_Made], total: int) -> Iterator[_Made]:
    """Yield the results and, like TFRecorder, log progress after each tenth of the examples, but at most every ten."""
    began, every = time.monotonic(), max(10, total // 10)
    for done, each in enumerate(made, 1):
        yield each
        if done % every == 0:
            left = timedelta(seconds=int((time.monotonic() - began) * (total - done) / done))
            logger.info("   Processed %d / %d examples (eta: %s)...", done, total, left)
    logger.info("   Processed %d / %d examples.", total, total)


class _ToStdout(logging.Handler):
    """A handler that prints the log, to show the progress of a long run if the program has not configured logging."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            print(self.format(record), flush=True)
        except Exception:
            self.handleError(record)


class _Splits(Handle[list[SplitWriter]]):
    def take(self, number: int, batch: Sequence[_Made]) -> None:
        self._owner.call_inside(self._take, self._value[number], batch)

    async def _take(self, split: SplitWriter, batch: Sequence[_Made]) -> None:
        for records, line in batch:
            if records or line:
                await split.take(records, line)


@asynccontextmanager
async def _splits(path: Path, plans: Sequence[SplitPlan], max_bytes: float, csv: bool) -> AsyncIterator[Any]:
    async with located(path) as (store, key):
        root = PrefixedStorage(store, key) if key else store
        shown = redact(fspath(path)).rstrip("/")
        async with open_splits(root, plans, path=shown, max_shard_bytes=int(max_bytes), csv=csv) as writers:
            yield writers


_open = as_context(_splits, _Splits)


def _plan(folder: str, name: str, kinds: set[type[DeclaredExample]]) -> SplitPlan:
    """Return a split's plan. Examples of several classes have no common schema, so the plan then has no schema."""
    kind = next(iter(kinds)) if len(kinds) == 1 else None
    return SplitPlan(
        folder,
        _data_set_name(name),
        kind.schema() if kind else None,
        {"split": name} | ({"example_class": kind.__name__} if kind else {}),
    )


def _base_name(path: Path) -> str:
    text = fspath(path)
    return os.path.basename(os.path.abspath(text) if "://" not in text else text.rstrip("/"))


def _data_set_name(folder: str) -> str:
    """Return a name for the data set. The folder's own name is invalid if it is hidden or contains wildcards."""
    return re.sub(r"[*?\[\]]", "-", folder.rpartition("/")[2].lstrip("_.")) or "examples"
