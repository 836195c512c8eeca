"""`running` runs a sharded writer's tasks, and commits or discards its open shards when the context exits."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from asyncrec._concurrency.tasks import TaskScope
from asyncrec._path_log import PathLog
from asyncrec._shards.journal.remedies import command_for
from asyncrec._shards.writing.open_shards import OpenShards

_path_log = PathLog("asyncrec.shards")


@asynccontextmanager
async def running(shards: OpenShards, *, commits: bool, exit_timeout: float) -> AsyncIterator[None]:
    """Run the tasks of a writer until the context exits. Then commit or discard its open shards.

    With ``commits``, they are committed even if the body raised an exception, which may take ``exit_timeout`` seconds.
    """
    async with TaskScope() as scope:
        with shards.job.manifest.deadline.applied():  # this applies to the tasks started here
            await shards.start(scope)
        finishing = False
        try:
            yield
            finishing = True
            await _finish_unless_cancelled(shards, exit_timeout)
        except BaseException as error:
            if not (finishing and isinstance(error, Exception)):
                shards.end_by(anyio.current_time() + exit_timeout)
                if commits:
                    await _finish_in_time(shards, error, exit_timeout)
            _tell_what_is_lost(shards, error)
            raise
        finally:
            shards.abandon()


async def _finish_unless_cancelled(shards: OpenShards, timeout: float) -> None:
    """Commit all shards.

    Shielded work does not notice a cancellation. If this call is cancelled, such work may take ``timeout`` seconds
    longer.
    """
    ended = False
    failure: BaseException | None = None

    async def listen() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            if not ended:
                shards.end_by(anyio.current_time() + timeout)

    try:
        async with anyio.create_task_group() as group:
            group.start_soon(listen)
            try:
                await shards.finish()
            except anyio.get_cancelled_exc_class():
                raise
            except BaseException as error:  # raised below, outside of an exception group
                failure = error
            ended = True
            group.cancel_scope.cancel()
    except BaseException:
        if failure is None:
            raise
    if failure is not None:
        raise failure


async def _finish_in_time(shards: OpenShards, error: BaseException, timeout: float) -> None:
    """Commit the open shards after the body has failed with ``error``. Any further error is added to it as a note."""
    with anyio.CancelScope(shield=True, deadline=anyio.current_time() + timeout) as scope:
        try:
            await shards.finish()
        except Exception as second:
            error.add_note(f"{shards.path}: in addition, the open shards could not be committed: {second}")
            writer = shards.job.header.writer
            _path_log.error(shards.path, "the open shards could not be committed: %s", second, writer=writer)
    if scope.cancelled_caught:
        error.add_note(f"{shards.path}: exit_timeout={timeout:g} ran out before the open shards were committed")


def _tell_what_is_lost(shards: OpenShards, error: BaseException) -> None:
    stats = shards.stats(0)
    # Each accepted record has a ticket. Records before the first uncommitted ticket were committed, or were dropped
    # with a lost source. Records that were dropped after that ticket are still counted as not committed.
    settled = max(shards.acknowledgements.first_uncommitted - 1, stats.committed_records)
    left = stats.records - settled
    if left <= 0:
        return
    job = shards.job
    keeps = shards.spools and (job.header.kind == "rolling" or job.staging.acknowledged)
    # With several open shards, only a lower bound is known, because the records on disk are not counted for each shard.
    safe = min(left, max(0, shards.acknowledgements.last_spooled - settled)) if keeps else 0
    message = f"{stats.committed_records} records were committed"
    if safe:
        where = job.header.url if job.spool is None else job.spool.root
        several = "at least " if len(shards.queues) > 1 else ""
        kept = "on the disk" if job.flush_log is None else "flushed to the store"
        message += f", {several}{safe} more are {kept} (to commit them, run {command_for(job.header, where)})"
    if left > safe:
        several = "up to " if safe and len(shards.queues) > 1 else ""
        message += f", {several}{left - safe} accepted records are not{' safe' * bool(safe)}: write them again"
    error.add_note(f"{shards.path}: {message}")
    _path_log.warning(shards.path, "%s", message, writer=job.header.writer, lost=left - safe)
