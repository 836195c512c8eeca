"""Write a data set of many shards without async: `ShardedWriter`, and the manifest of a data set.

`ShardedWriter.write` collects records in the caller's thread, like `RecordWriter.write`. It can still return a record's
ticket immediately, because a ticket is the number of a write, and all writes pass through this class.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from functools import partial, wraps
from inspect import signature
from typing import Any, Literal, ParamSpec, cast

import anyio

from asyncrec._framing.frames import FRAME_OVERHEAD
from asyncrec._records.record_size import buffer_size, check_size
from asyncrec._records.writing.record_encoder import Record, RecordEncoder, encoder_of, schema_of
from asyncrec._records.writing.write_batch import BATCH_BYTES, BATCH_RECORDS, batched
from asyncrec._records.writing.writer import Level
from asyncrec._shards.manifest import snapshot
from asyncrec._shards.ownership import listing
from asyncrec._shards.recovery import recover as recovery
from asyncrec._shards.writing import open as opening
from asyncrec._shards.writing import writer
from asyncrec._shards.writing.keys import digest_of, partition_of
from asyncrec._shards.writing.totals import ShardedWriterStats
from asyncrec._shards.writing.writer import Partition
from asyncrec.blocking._collected import Collected, Flush, flush_in_time
from asyncrec.blocking._owner import Handle, Opened, Owner, as_call
from asyncrec.blocking._portal import Call
from asyncrec.example._schema import Schema
from asyncrec.storage._base import Buffer
from asyncrec.storage._url import redact
from asyncrec.tools import _compact, _delete, _forget_source

P = ParamSpec("P")


class ShardedWriter(Handle[writer.ShardedWriter]):
    """`asyncrec.ShardedWriter`. Any number of threads may use it.

    `write` collects records. The collected records are passed to the loop once they reach 1,024 records or 512 KiB, by
    every other method except `take`, `has` and `stats`, at the end of the ``with``, and after ``flush_seconds``, which
    also flushes them. Until then, they do not count towards ``memory_limit`` or ``max_shard_seconds``.
    """

    def __init__(
        self,
        owner: Owner[writer.ShardedWriter],
        value: writer.ShardedWriter,
        *,
        partition_by: Callable[[bytes], Partition] | None,
        skips: bool,
        commits: bool,
        exit_timeout: float,
        encoder: RecordEncoder | None = None,
        sees: bool = False,
    ) -> None:
        super().__init__(owner, value)
        self._most = value.max_record_bytes
        self._encoder, self._sees = encoder, sees
        self._partition_by, self._skips, self._commits = partition_by, skips, commits
        self._lock = threading.RLock()
        self._collected = Collected(value, exit_timeout)
        self._pending = self._collected.records
        self._pending_bytes = self._tickets = 0
        self._pending_keys: set[bytes] = set()
        self._timer: Call[None] | None = None
        self._is_timed = value.flush_seconds is None  # True if the timer runs or is not needed
        owner.finish_with(self._finish)
        if commits:
            owner.rescue_with(self._collected.rescue)

    @property
    def path(self) -> str:
        return self._value.path

    @property
    def writer_id(self) -> str:
        return self._value.writer_id

    @property
    def flush_seconds(self) -> float | None:
        """The number of seconds after which records are flushed automatically, or `None` for no automatic flushes."""
        return self._value.flush_seconds

    @property
    def max_record_bytes(self) -> int:
        """The length in bytes above which a record is rejected."""
        return self._most

    @property
    def last_ticket(self) -> int:
        """The ticket of the last write, or 0 before the first write."""
        return self._tickets

    @property
    def schema(self) -> Schema | None:
        """The schema against which records are checked."""
        return self._value.schema if self._encoder is None else self._encoder.schema

    @property
    def progress(self) -> dict[str, int]:
        """See `asyncrec.ShardedWriter.progress`."""
        return self._value.progress

    def write(
        self,
        record: Record,
        *,
        key: str | bytes | None = None,
        partition: Partition | None = None,
        source: str | None = None,
        position: int | None = None,
    ) -> int:
        """Write one record and return its ticket, for `wait`. See `asyncrec.ShardedWriter.write`.

        If the call is interrupted, the record has still been accepted, and is passed on later.
        """
        if self._sees or source is not None or position is not None:
            given: dict[str, Any] = {"key": key, "partition": partition, "source": source, "position": position}
            return self._at_once(lambda: self._value.write(record, **given))
        if self._encoder is not None:
            record, key = self._encoder.take_now(record, key)
        size = buffer_size(record)
        data = record if type(record) is bytes else bytes(cast("Buffer", record))
        if size > self._most:
            check_size(size, self._most, self.path)
        with self._lock:
            if self._collected.is_closed:
                raise anyio.ClosedResourceError(f"{self.path}: the writer is closed; write inside its `with`")
            if partition is None and self._partition_by is not None:
                partition = self._partition_by(data)
            if partition is not None:
                partition_of(partition, 1)  # so that a wrong type is rejected by this call rather than a later one
            if key is None or self._is_new(key):
                self._tickets += 1
            self._pending.append((data, key, partition))
            self._pending_bytes += size + FRAME_OVERHEAD
            ticket = self._tickets
            if not self._is_timed:
                self._begin_timer()
            if len(self._pending) >= BATCH_RECORDS or self._pending_bytes >= BATCH_BYTES:
                self.hand_on()
        return ticket

    def write_many(
        self,
        records: Iterable[Record],
        *,
        partition: Partition | None = None,
        source: str | None = None,
        position: int | None = None,
    ) -> int:
        """Write many records without keys, in order, and return the ticket of the last one.

        The iterable runs in this thread. If the call is interrupted, only the first records have been written.
        """
        if self._sees or source is not None or position is not None:
            given: dict[str, Any] = {"partition": partition, "source": source, "position": position}
            taken = list(records)
            return self._at_once(lambda: self._value.write_many(taken, **given))
        if self._encoder is not None or (self._partition_by is not None and partition is None):
            for record in records:
                self.write(record, partition=partition)
            return self._tickets

        async def write_many(part: list[Any]) -> int:
            return await self._value.write_many(part, partition=partition)

        for item in batched(records):
            with self._lock:
                self.hand_on()
                try:
                    self._owner.call(write_many, item[0] if isinstance(item, tuple) else [item])
                finally:
                    self._tickets = self._value.last_ticket
        return self._tickets

    def advance(self, source: str, position: int) -> int:
        """See `asyncrec.ShardedWriter.advance`."""
        return self._at_once(lambda: self._value.advance(source, position))

    def take(self, source: str) -> int | None:
        """See `asyncrec.ShardedWriter.take`."""
        return self._owner.call(self._value.take, source)

    def release(self, *sources: str) -> None:
        """See `asyncrec.ShardedWriter.release`."""
        self.hand_on()
        self._owner.call(self._value.release, *sources)

    def _at_once(self, call: Callable[[], Coroutine[Any, Any, int]]) -> int:
        """Pass on the collected records, then await ``call`` and return its result."""

        async def write() -> int:
            return await call()

        with self._lock:
            self.hand_on()
            try:
                return self._owner.call(write)
            finally:
                self._tickets = self._value.last_ticket

    def has(self, key: str | bytes) -> bool:
        """See `asyncrec.ShardedWriter.has`."""
        with self._lock:
            return self._value.has(key) or digest_of(key) in self._pending_keys

    def flush(self, *, require: Level = "buffered") -> Level:
        """See `asyncrec.ShardedWriter.flush`."""
        self.hand_on()
        return self._owner.call(partial(self._value.flush, require=require))

    def commit(self) -> Level:
        """See `asyncrec.ShardedWriter.commit`."""
        self.hand_on()
        return self._owner.call(self._value.commit)

    def wait(self, ticket: int, level: Literal["spooled", "committed"]) -> None:
        """See `asyncrec.ShardedWriter.wait`. Other threads may write in the meantime."""
        self.hand_on()
        self._owner.call(self._value.wait, ticket, level)

    def stats(self) -> ShardedWriterStats:
        """See `asyncrec.ShardedWriter.stats`. Collected records that are not yet passed on are not counted."""
        return self._owner.call_sync(self._value.stats)

    def hand_on(self) -> None:
        """Pass on the collected records, which starts ``max_shard_seconds``. Call this before a long pause."""
        with self._lock:
            if not self._pending:
                return
            try:
                self._owner.call(self._collected.hand_on)
            finally:
                self._count_pending()

    def _count_pending(self) -> None:
        self._pending_bytes = sum(len(record) + FRAME_OVERHEAD for record, _, _ in self._pending)
        self._pending_keys = {digest_of(key) for _, key, _ in self._pending if key is not None and self._skips}

    def _begin_timer(self) -> None:
        seconds = self._value.flush_seconds
        assert seconds is not None, "_is_timed is true without flush_seconds"
        self._timer = self._owner.start(flush_in_time, weakref.WeakMethod[Flush](self._flush_collected), seconds)
        self._is_timed = True

    async def _flush_collected(self) -> bool | None:
        """Write and flush the collected records, on the loop. See `Flush`. Any error is raised by the next call.

        The asynchronous writer keeps its error. Records that were not passed on remain collected, and fail again.
        """
        if not self._lock.acquire(blocking=False):
            return None
        found = False
        try:
            if self._pending and not self._collected.is_closed:
                await self._collected.hand_on()
                found = True
        except Exception:
            pass
        finally:
            self._count_pending()
            self._is_timed = found
            self._lock.release()
        if not found:
            return False
        with suppress(Exception):
            await self._value.flush()  # without the lock, so that other threads can write
        return True

    def _is_new(self, key: str | bytes) -> bool:
        """Return whether a write with this key gets a ticket rather than being skipped as a duplicate.

        The writer's set of keys changes only when records are passed on, which needs the lock that this thread holds.
        """
        digest = digest_of(key)
        if not self._skips:
            return True
        if digest in self._pending_keys or self._value.has(key):
            return False
        self._pending_keys.add(digest)
        return True

    def _finish(self, error: BaseException | None) -> None:
        if self._timer is not None:
            self._timer.abandon()  # otherwise, it might hold the lock while its flush waits for a full store
        with self._lock:
            self._collected.is_closed = True
            if error is None:
                self.hand_on()
            elif self._commits:
                try:
                    self._owner.call(self._collected.hand_on_in_time)
                except BaseException as failure:
                    error.add_note(
                        f"{self.path}: in addition, {len(self._pending)} buffered records were not written: {failure}"
                    )


def _with_options(func: Callable[P, Any]) -> Callable[P, Opened[ShardedWriter]]:
    default_timeout: float = signature(func).parameters["exit_timeout"].default

    @wraps(func)
    def opened(*args: P.args, **kwargs: P.kwargs) -> Opened[ShardedWriter]:
        options = cast("dict[str, Any]", kwargs)
        own = {} if options.get("seen") is not None else options  # with `seen`, the writer does not collect records
        # `partition_by` is the caller's code, so it runs in the caller's thread, before a record gets its ticket.
        partition_by = own.pop("partition_by", None)
        # Records are encoded, and checked against the schema, in the caller's thread.
        schema = schema_of(own.get("schema"))
        validate, key_feature = own.pop("validate", "sample"), own.pop("key_feature", None)
        encoder = encoder_of(
            redact(str((*args, options.get("path", ""))[0])), schema, validate=validate, key_feature=key_feature
        )
        if schema is not None:
            options["validate"] = "none"
        together = options.get("num_shards") is not None or options.get("mode") == "replace"

        def make(owner: Owner[writer.ShardedWriter], value: writer.ShardedWriter) -> ShardedWriter:
            return ShardedWriter(
                owner,
                value,
                partition_by=partition_by,
                skips=options.get("on_duplicate") == "skip",
                commits=opening.commits_on_error(options.get("on_error"), together=together),
                exit_timeout=options.get("exit_timeout", default_timeout),
                encoder=encoder,
                sees=own is not options,
            )

        return Opened(make, lambda: Owner(func(*args, **kwargs), func.__name__), func.__name__)

    return opened


open_sharded_writer = _with_options(opening.open_sharded_writer)
read_manifest = as_call(snapshot.read_manifest)
compact = as_call(_compact.compact)
delete = as_call(_delete.delete)
forget_source = as_call(_forget_source.forget_source)
list_shards = as_call(listing.list_shards)
recover = as_call(recovery.recover)
