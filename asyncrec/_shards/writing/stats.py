"""`ShardedWriterStats`: the counts of a sharded writer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardedWriterStats:
    """The counts of a sharded writer at one moment.

    Attributes:
        records, bytes: taken; bytes of frames, before compression.
        duplicates: dropped, because their key had been written.
        committed_records, committed_bytes, committed_shards: in the manifest; bytes as stored.
        buffered_bytes: held for queues and stores now; with ``reserved_bytes`` (a chunk for each open shard) never more
            than ``memory_limit``, unless a single record is larger.
        oldest_uncommitted_seconds: how long the oldest record that is not committed has been waiting.
        oldest_buffered_seconds: how long the oldest that is on no disk and in no store, so that a kill would lose it.
        callers_waiting: for room, now.
        seconds_waiting: all callers together, for room.
        seconds_compressing, seconds_storing: all finished shards together.
        spool_bytes: of shards in the spool, those open included.
        upload_retries: how often something of an upload from the spool failed and was tried again.
    """

    records: int
    bytes: int
    duplicates: int
    committed_records: int
    committed_bytes: int
    committed_shards: int
    buffered_bytes: int
    reserved_bytes: int
    memory_limit: int
    oldest_uncommitted_seconds: float
    oldest_buffered_seconds: float
    callers_waiting: int
    seconds_waiting: float
    seconds_compressing: float
    seconds_storing: float
    spool_bytes: int
    upload_retries: int
