"""The kit accepts a correct storage backend, and detects the fault in each of many broken backends."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar
from urllib.parse import unquote

import anyio
import anyio.lowlevel
import crc32c
import pytest

from asyncrec.errors import ObjectChangedError, ObjectExistsError, ObjectNotFoundError, StorageError
from asyncrec.storage._base import Buffer, ByteSink, ByteSource, ObjectInfo, Storage
from asyncrec.testing import StorageConformance, replaces_case, virtual_backend

pytestmark = pytest.mark.anyio


class Toy(Storage):
    """A minimal correct storage, in which every operation waits once. Each mutant below breaks one promise."""

    root = "toy://"
    losing = False  # whether the response to a publication is lost; this storage then finds out itself
    slow = 0.0  # in seconds
    strange = False  # whether one response is from a different server; this storage notices

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, ObjectInfo]] = {}
        self.unfinished: set[str] = set()
        self.versions = itertools.count()

    async def wait(self) -> None:
        await anyio.sleep(self.slow)

    def check(self, key: str) -> None:
        if not key or key.startswith("/") or ".." in key.split("/"):
            raise ValueError(f"bad key {key!r}")

    def info(self, key: str, data: bytes) -> ObjectInfo:
        return ObjectInfo(key, len(data), f"v{next(self.versions)}", crc32c.crc32c(data), datetime.now(UTC))

    def publish(self, key: str, data: bytes, exclusive: bool) -> ObjectInfo:
        if exclusive and key in self.objects:
            raise ObjectExistsError(f"{key} is there")
        self.objects[key] = data, self.info(key, data)
        return self.objects[key][1]

    def found(self, key: str, etag: str | None = None) -> tuple[bytes, ObjectInfo]:
        self.check(key)
        if key not in self.objects:
            raise ObjectNotFoundError(f"{key} is not there")
        if etag not in (None, self.objects[key][1].etag):
            raise ObjectChangedError(f"{key} is another")
        return self.objects[key]

    def make_sink(self) -> ToySink:
        return ToySink()

    @asynccontextmanager
    async def open_sink(self, key: str, *, exclusive: bool = False) -> AsyncIterator[ByteSink]:
        self.check(key)
        await self.wait()
        sink = self.make_sink()
        self.unfinished.add(key)
        try:
            yield sink
            await anyio.lowlevel.checkpoint()
            sink.published = self.publish(key, sink.content(), exclusive)
        finally:
            sink.closed = True
            self.unfinished.discard(key)

    @asynccontextmanager
    async def open_source(
        self, key: str, *, start: int = 0, end: int | None = None, info: ObjectInfo | None = None
    ) -> AsyncIterator[ByteSource]:
        await self.wait()
        data, found = self.found(key, None if info is None else info.etag)
        source = self.make_source(data[start:end], found)
        yield source
        source.closed = True

    def make_source(self, data: bytes, info: ObjectInfo) -> ToySource:
        return ToySource(data, info)

    async def list_objects(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        for key in sorted(self.objects, key=str.encode):
            if key in self.objects and key.startswith(prefix) and key.encode() > start_after.encode():
                yield self.objects[key][1]
                await self.wait()

    async def head(self, key: str) -> ObjectInfo:
        await self.wait()
        return self.found(key)[1]

    async def delete(self, key: str) -> None:
        self.check(key)
        await self.wait()
        self.objects.pop(key, None)


class ToySink(ByteSink):
    chunk_size = 1_000

    def __init__(self) -> None:
        self.chunks: list[Buffer] = []
        self.closed = False
        self.sending = False

    def content(self) -> bytes:
        if self.sending:
            raise StorageError("a send was given up")
        return b"".join(self.chunks)

    async def send(self, buffers: Sequence[Buffer]) -> None:
        if self.closed:
            raise anyio.ClosedResourceError
        self.sending = True
        await anyio.lowlevel.checkpoint()
        self.chunks.append(b"".join(buffers))
        self.sending = False

    async def flush(self, tail: Sequence[Buffer]) -> int:
        await anyio.lowlevel.checkpoint()
        return 0


class ToySource(ByteSource):
    def __init__(self, data: bytes, info: ObjectInfo) -> None:
        self.data, self.info = data, info
        self.position = 0
        self.closed = False

    async def receive(self, max_bytes: int) -> bytes:
        if self.closed:
            raise anyio.ClosedResourceError
        await anyio.lowlevel.checkpoint()
        block = self.data[self.position : self.position + max_bytes]
        self.position += len(block)
        return block


class TestToy(StorageConformance):
    toy: type[Toy] = Toy

    @asynccontextmanager
    async def open_storage(self) -> AsyncIterator[Storage]:
        yield self.toy()

    async def raw_put(self, storage: Any, key: str, data: bytes) -> None:
        storage.objects[key] = data, Toy.info(storage, key, data)

    async def raw_get(self, storage: Any, key: str) -> bytes | None:
        return storage.objects[key][0] if key in storage.objects else None

    async def raw_list(self, storage: Any) -> Collection[str]:
        return set(storage.objects)

    async def raw_unfinished(self, storage: Any) -> Collection[str]:
        return set(storage.unfinished)

    @contextmanager
    def losing_an_answer(self, storage: Any) -> Iterator[None]:
        storage.losing = True
        yield
        storage.losing = False

    @contextmanager
    def answered_by_another(self, storage: Any, number: int, body: bytes) -> Iterator[None]:
        storage.strange = True
        yield
        storage.strange = False

    answered_by_static_page = answered_by_another

    @contextmanager
    def slowed(self, storage: Any, seconds: float) -> Iterator[None]:
        storage.slow = seconds
        yield
        storage.slow = 0.0


CASES = sorted(name for name in dir(StorageConformance) if name.startswith("test_"))


async def fails(case: str, broken: type[Toy]) -> bool:
    suite = type("Suite", (TestToy,), {"toy": broken, "__test__": False})()
    try:
        await getattr(suite, case)()
    except (Exception, pytest.fail.Exception):  # pytest.raises fails with an exception that is not an Exception
        return True
    return False


# Broken storages, each named for what it does wrong ----------------------------------------------------------------

MUTANTS: dict[type[Toy], str] = {}


def caught_by(case: str) -> Any:
    """Register a broken storage, or a broken sink or source of a correct one, with the case that detects it."""

    def register(mutant: Any) -> Any:
        if issubclass(mutant, ToySink):
            mutant = type(mutant.__name__, (Toy,), {"make_sink": lambda self, broken=mutant: broken()})
        elif issubclass(mutant, ToySource):
            mutant = type(mutant.__name__, (Toy,), {"make_source": lambda self, *given, broken=mutant: broken(*given)})
        MUTANTS[mutant] = case
        return mutant

    return register


@caught_by("test_list_answered_by_another")
class TakesAPageForAnEmptyList(Toy):
    async def list_objects(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        async for info in super().list_objects(prefix, start_after=start_after):
            if not self.strange:
                yield info


@caught_by("test_read_answered_by_another")
class TakesAPageForNoObject(Toy):
    async def head(self, key: str) -> ObjectInfo:
        if self.strange:
            raise ObjectNotFoundError(f"{key} is not there")
        return await super().head(key)


@caught_by("test_read_answered_by_static_page")
class TakesAPageForTheObject(Toy):
    async def head(self, key: str) -> ObjectInfo:
        found = await super().head(key)
        return dataclasses.replace(found, size=42) if self.strange else found


@caught_by("test_delete_answered_by_another")
class BelievesAPageThatItIsDeleted(Toy):
    async def delete(self, key: str) -> None:
        if not self.strange:
            await super().delete(key)


@caught_by("test_write_answered_by_another")
class BelievesAPageThatItIsPublished(Toy):
    def publish(self, key: str, data: bytes, exclusive: bool) -> ObjectInfo:
        return self.info(key, data) if self.strange else super().publish(key, data, exclusive)


@caught_by("test_abort_on_error")
class PublishesOnError(Toy):
    @asynccontextmanager
    async def open_sink(self, key: str, *, exclusive: bool = False) -> AsyncIterator[ByteSink]:
        async with super().open_sink(key, exclusive=exclusive) as sink:
            try:
                yield sink
            except Exception:
                self.publish(key, sink.content(), exclusive)
                raise


@caught_by("test_abort_on_cancellation")
class PublishesOnCancellation(Toy):
    @asynccontextmanager
    async def open_sink(self, key: str, *, exclusive: bool = False) -> AsyncIterator[ByteSink]:
        async with super().open_sink(key, exclusive=exclusive) as sink:
            try:
                yield sink
            except anyio.get_cancelled_exc_class():
                self.publish(key, sink.content(), exclusive)
                raise


@caught_by("test_abort_on_error")
class SwallowsErrors(Toy):
    @asynccontextmanager
    async def open_sink(self, key: str, *, exclusive: bool = False) -> AsyncIterator[ByteSink]:
        try:
            async with super().open_sink(key, exclusive=exclusive) as sink:
                yield sink
        except Exception:
            return


@caught_by("test_abort_on_error")
class GroupsErrors(Toy):
    @asynccontextmanager
    async def open_sink(self, key: str, *, exclusive: bool = False) -> AsyncIterator[ByteSink]:
        try:
            async with super().open_sink(key, exclusive=exclusive) as sink:
                yield sink
        except Exception as error:
            raise ExceptionGroup("one", [error]) from None


@caught_by("test_abort_on_error")
class LeavesPartialsOnError(Toy):
    @asynccontextmanager
    async def open_sink(self, key: str, *, exclusive: bool = False) -> AsyncIterator[ByteSink]:
        try:
            async with super().open_sink(key, exclusive=exclusive) as sink:
                yield sink
        except Exception:
            self.unfinished.add(key)
            raise


@caught_by("test_abort_on_cancellation")
class LeavesPartialsOnCancellation(Toy):
    """Waits without a shield while it cleans up."""

    @asynccontextmanager
    async def open_sink(self, key: str, *, exclusive: bool = False) -> AsyncIterator[ByteSink]:
        self.check(key)
        sink = self.make_sink()
        self.unfinished.add(key)
        try:
            yield sink
            await anyio.lowlevel.checkpoint()
            sink.published = self.publish(key, sink.content(), exclusive)
        finally:
            sink.closed = True
            await anyio.lowlevel.checkpoint()
            self.unfinished.discard(key)


@caught_by("test_abort_on_cancellation")
class SaysNothingWasPublished(Toy):
    """Can be cancelled after it has published but before it reports success."""

    @asynccontextmanager
    async def open_sink(self, key: str, *, exclusive: bool = False) -> AsyncIterator[ByteSink]:
        async with super().open_sink(key, exclusive=exclusive) as sink:
            yield sink
            info = self.publish(key, sink.content(), exclusive)
            await anyio.lowlevel.checkpoint()
            sink.published = info


@caught_by("test_abort_on_cancellation")
class CannotBeCancelled(Toy):
    class Sink(ToySink):
        async def send(self, buffers: Sequence[Buffer]) -> None:
            with anyio.CancelScope(shield=True):
                await super().send(buffers)

    def make_sink(self) -> ToySink:
        return self.Sink()

    @asynccontextmanager
    async def open_sink(self, key: str, *, exclusive: bool = False) -> AsyncIterator[ByteSink]:
        with anyio.CancelScope(shield=True):
            async with super().open_sink(key, exclusive=exclusive) as sink:
                yield sink


@caught_by("test_abandoned_send")
class ForgetsWhatWasGivenUp(ToySink):
    sending = property(lambda self: False, lambda self, value: None)


@caught_by("test_listing_omits_unpublished_objects")
class ShowsWhatIsUnfinished(Toy):
    async def list_objects(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        for info in [info async for info in super().list_objects(prefix, start_after=start_after)]:
            yield info
        for key in self.unfinished:
            yield self.info(key, b"")


@caught_by("test_buffers_reused")
class JoinsLate(ToySink):
    async def send(self, buffers: Sequence[Buffer]) -> None:
        await super().send([])
        self.chunks.extend(buffers)


@caught_by("test_buffers_reused")
class JoinsShortObjectsLate(ToySink):
    """Copies objects longer than a chunk, but keeps the only chunk of a short object without copying it."""

    async def send(self, buffers: Sequence[Buffer]) -> None:
        if self.chunks or sum(map(len, buffers)) == self.chunk_size:
            await super().send(buffers)
        else:
            await super().send([])
            self.chunks.extend(buffers)


@caught_by("test_sizes")
class ForgetsTheShortLastChunk(ToySink):
    def content(self) -> bytes:
        return b"".join(chunk for chunk in self.chunks if len(chunk) == self.chunk_size)


@caught_by("test_sizes")
class MakesNoEmptyObject(Toy):
    def publish(self, key: str, data: bytes, exclusive: bool) -> ObjectInfo:
        return super().publish(key, data, exclusive) if data else self.info(key, data)


@caught_by("test_sizes")
class SaysNoChecksumOfItsOwn(Toy):
    def info(self, key: str, data: bytes) -> ObjectInfo:
        return dataclasses.replace(super().info(key, data), crc32c=crc32c.crc32c(data, 1))


@caught_by("test_sizes")
class ForgetsPublished(ToySink):
    published = property(lambda self: None, lambda self, info: None)


@caught_by("test_concurrent_sinks")
class SharesOneBuffer(Toy):
    shared: ClassVar[list[Buffer]] = []

    def make_sink(self) -> ToySink:
        sink = ToySink()
        if not self.unfinished:
            self.shared.clear()
        sink.chunks = self.shared
        return sink


@caught_by("test_flush")
class SendsTheTailTwice(ToySink):
    async def flush(self, tail: Sequence[Buffer]) -> int:
        self.chunks.append(b"".join(tail))
        return sum(map(len, tail))


@caught_by("test_flush")
class SpoolsNothing(Toy):
    flush_level = "spooled"


@caught_by("test_sink_used_after_exit")
class TakesMoreAfterExit(ToySink):
    closed = property(lambda self: False, lambda self, value: None)


@caught_by("test_overwrite")
class NeverReplaces(Toy):
    def publish(self, key: str, data: bytes, exclusive: bool) -> ObjectInfo:
        self.objects.setdefault(key, (data, self.info(key, data)))
        return self.info(key, data)


@caught_by("test_exclusive_creation")
class IgnoresExclusive(Toy):
    def publish(self, key: str, data: bytes, exclusive: bool) -> ObjectInfo:
        return super().publish(key, data, exclusive=False)


@caught_by("test_flush_number_taken")
class IgnoresExclusiveBelowHiddenFolders(Toy):
    def publish(self, key: str, data: bytes, exclusive: bool) -> ObjectInfo:
        return super().publish(key, data, exclusive and "_flush/" not in key)


@caught_by("test_records_flushed_to_store_survive")
class DeletesNothingBelowHiddenFolders(Toy):
    async def delete(self, key: str) -> None:
        if "/_flush/" not in key:
            await super().delete(key)


@caught_by("test_records_flushed_to_store_survive")
class ListsNoHiddenFolders(Toy):
    async def list_objects(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        async for info in super().list_objects(prefix, start_after=start_after):
            if "/_" not in info.key:
                yield info


@caught_by("test_exclusive_race")
class LooksBeforeItLeaps(Toy):
    """Checks whether the key is free only on opening."""

    @asynccontextmanager
    async def open_sink(self, key: str, *, exclusive: bool = False) -> AsyncIterator[ByteSink]:
        if exclusive and key in self.objects:
            raise ObjectExistsError(f"{key} is there")
        async with super().open_sink(key) as sink:
            yield sink


@caught_by("test_exclusive_race_of_several_parts")
class IgnoresExclusiveOfSeveralParts(LooksBeforeItLeaps):
    """Like Ceph 16, replaces an object that was created while the parts were being assembled."""

    def publish(self, key: str, data: bytes, exclusive: bool) -> ObjectInfo:
        return super().publish(key, data, exclusive=len(data) < ToySink.chunk_size)


@caught_by("test_exclusive_creation_over_several_parts")
class KeepsOnlyShortOnes(Toy):
    def publish(self, key: str, data: bytes, exclusive: bool) -> ObjectInfo:
        older = self.objects.get(key, (b"", None))[0]
        return super().publish(key, data, exclusive and len(older) < ToySink.chunk_size)


@caught_by("test_lost_answer")
class TakesItsOwnForAnothers(Toy):
    """After a lost response, it repeats the request and believes the new response."""

    def publish(self, key: str, data: bytes, exclusive: bool) -> ObjectInfo:
        info = super().publish(key, data, exclusive)
        return super().publish(key, data, exclusive) if self.losing else info


@caught_by("test_empty_object_written")
class WantsAByteToMakeAnObject(Toy):
    def publish(self, key: str, data: bytes, exclusive: bool) -> ObjectInfo:
        if not data:
            return self.info(key, data)
        return super().publish(key, data, exclusive)


@caught_by("test_odd_keys")
class UnquotesKeys(Toy):
    def open_sink(self, key: str, *, exclusive: bool = False) -> Any:
        return super().open_sink(unquote(key), exclusive=exclusive)


@caught_by("test_key_that_is_also_a_folder")
class IsAFileSystem(Toy):
    def publish(self, key: str, data: bytes, exclusive: bool) -> ObjectInfo:
        if any(other.startswith(f"{key}/") or key.startswith(f"{other}/") for other in self.objects):
            raise IsADirectoryError(key)
        return super().publish(key, data, exclusive)


@caught_by("test_rejected_keys")
class LeavesItsRoot(Toy):
    def check(self, key: str) -> None:
        if not key:
            raise ValueError("no key")


@caught_by("test_listing_stays_inside")
class ListsTheParent(Toy):
    async def list_objects(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        if prefix == "../":
            yield self.info("../sibling", b"")
        for info in [info async for info in super().list_objects(prefix, start_after=start_after)]:
            yield info


class _Sorted(Toy):
    @staticmethod
    def sort_key(key: str) -> Any: ...

    async def list_objects(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        found = [info async for info in super().list_objects(prefix, start_after=start_after)]
        for info in sorted(found, key=lambda info: self.sort_key(info.key)):
            yield info


@caught_by("test_listing_order")
class ListsAsWritten(_Sorted):
    sort_key = staticmethod(lambda key: 0)

    async def list_objects(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        for key, (_, info) in self.objects.items():
            if key.startswith(prefix) and key > start_after:
                yield info


@caught_by("test_listing_order")
class ListsFolderByFolder(_Sorted):
    sort_key = staticmethod(lambda key: key.split("/"))


@caught_by("test_listing_order")
class ListsByUtf16(_Sorted):
    sort_key = staticmethod(lambda key: key.encode("utf-16-be"))


@caught_by("test_listing_order")
class ListsIgnoringCase(_Sorted):
    sort_key = staticmethod(str.casefold)


class _Filtered(Toy):
    def keep(self, key: str, prefix: str, start_after: str) -> bool:
        raise NotImplementedError

    async def list_objects(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        for info in [info async for info in super().list_objects()]:
            if self.keep(info.key, prefix, start_after):
                yield info


@caught_by("test_listing_order")
class TakesPrefixesForFolders(_Filtered):
    def keep(self, key: str, prefix: str, start_after: str) -> bool:
        return (not prefix or key.startswith(prefix.rstrip("/") + "/")) and key > start_after


@caught_by("test_listing_start_after")
class StartsAtStartAfter(_Filtered):
    def keep(self, key: str, prefix: str, start_after: str) -> bool:
        return key.startswith(prefix) and key >= start_after


@caught_by("test_listing_start_after")
class IgnoresStartAfter(_Filtered):
    def keep(self, key: str, prefix: str, start_after: str) -> bool:
        return key.startswith(prefix)


@caught_by("test_listing_pages")
class ListsOnePage(Toy):
    async def list_objects(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        found = [info async for info in super().list_objects(prefix, start_after=start_after)]
        for info in found[:1_000]:
            yield info


@caught_by("test_listing_pages")
class CountsWhatItListed(Toy):
    """Continues a listing after a number of objects, rather than after a key."""

    async def list_objects(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        listed = 0
        while found := [info async for info in super().list_objects(prefix, start_after=start_after)][listed:][:1_000]:
            for info in found:
                yield info
            listed += len(found)


@caught_by("test_ranges")
class IgnoresTheRangesEnd(Toy):
    def open_source(self, key: str, **options: Any) -> Any:
        return super().open_source(key, **options | {"end": None})


@caught_by("test_ranges")
class RefusesRangesPastTheEnd(Toy):
    @asynccontextmanager
    async def open_source(self, key: str, **options: Any) -> AsyncIterator[ByteSource]:
        if options.get("start", 0) > len(self.found(key)[0]):
            raise OSError("416")
        async with super().open_source(key, **options) as source:
            yield source


@caught_by("test_empty_object")
class RefusesEmptyRanges(Toy):
    @asynccontextmanager
    async def open_source(self, key: str, **options: Any) -> AsyncIterator[ByteSource]:
        if not self.found(key)[0]:
            raise OSError("416, even for 0-")
        async with super().open_source(key, **options) as source:
            yield source


@caught_by("test_ranges")
class GivesMoreThanAsked(ToySource):
    async def receive(self, max_bytes: int) -> bytes:
        return await super().receive(max(max_bytes, 64))


@caught_by("test_short_reads")
class CountsWhatItAskedFor(ToySource):
    """Counts the bytes requested, although its server returns at most 64 KiB at once."""

    async def receive(self, max_bytes: int) -> bytes:
        before = self.position
        block = await super().receive(min(max_bytes, 64 << 10))
        self.position = before + max_bytes
        return block


@caught_by("test_receive_cancelled")
class LosesBytesWhenCancelled(ToySource):
    async def receive(self, max_bytes: int) -> bytes:
        block = await super().receive(max_bytes)
        await anyio.lowlevel.checkpoint()
        return block


@caught_by("test_source_used_after_exit")
class GivesMoreAfterExit(ToySource):
    closed = property(lambda self: False, lambda self, value: None)


@caught_by("test_missing_object")
class LetsItsOwnErrorsOut(Toy):
    def found(self, key: str, etag: str | None = None) -> tuple[bytes, ObjectInfo]:
        try:
            return super().found(key, etag)
        except ObjectNotFoundError:
            raise KeyError(key) from None


@caught_by("test_changed_object")
class IgnoresThePinnedEtag(Toy):
    def found(self, key: str, etag: str | None = None) -> tuple[bytes, ObjectInfo]:
        return super().found(key)


@caught_by("test_known_version")
class ReadsAllOfAKnownVersion(Toy):
    def open_source(self, key: str, *, start: int = 0, end: int | None = None, info: ObjectInfo | None = None) -> Any:
        return super().open_source(key, start=start if info is None else 0, end=end, info=info)


@caught_by("test_changed_object")
class MixesVersions(Toy):
    class Source(ToySource):
        storage: Toy

        async def receive(self, max_bytes: int) -> bytes:
            self.data = self.storage.objects[self.info.key][0]
            return await super().receive(max_bytes)

    def make_source(self, data: bytes, info: ObjectInfo) -> ToySource:
        source = self.Source(data, info)
        source.storage = self
        return source


@caught_by("test_changed_object")
class TakesTheLengthForTheEtag(Toy):
    def info(self, key: str, data: bytes) -> ObjectInfo:
        return dataclasses.replace(super().info(key, data), etag=f"{len(data)}")


@caught_by("test_many_sources")
class OpensOneSourceAtATime(Toy):
    def __init__(self) -> None:
        super().__init__()
        self.busy = False

    @asynccontextmanager
    async def open_source(self, key: str, **options: Any) -> AsyncIterator[ByteSource]:
        if self.busy:
            raise anyio.BusyResourceError("opening")
        self.busy = True
        try:
            async with super().open_source(key, **options) as source:
                yield source
        finally:
            self.busy = False


@caught_by("test_consistent_info")
class HasTwoEtags(Toy):
    async def head(self, key: str) -> ObjectInfo:
        info = await super().head(key)
        return dataclasses.replace(info, etag=f'"{info.etag}"')


@caught_by("test_consistent_info")
class PublishesInAnotherTimeZone(Toy):
    def publish(self, key: str, data: bytes, exclusive: bool) -> ObjectInfo:
        info = super().publish(key, data, exclusive)
        return dataclasses.replace(info, modified=info.modified + timedelta(hours=2))


@caught_by("test_loop_not_blocked")
class HoldsTheLoop(Toy):
    async def wait(self) -> None:
        time.sleep(self.slow)  # noqa: ASYNC251  # the fault
        await anyio.lowlevel.checkpoint()


@caught_by("test_loop_not_blocked")
class IsNotSlow(Toy):
    """Ignores the hook of the tests, which would therefore see no requests."""

    slow = property(lambda self: 0.0, lambda self, value: None)  # type: ignore[assignment]


@caught_by("test_waiting_call_cancellable")
class ShieldsItsRequests(Toy):
    async def wait(self) -> None:
        with anyio.CancelScope(shield=True):
            await super().wait()


@caught_by("test_waiting_call_cancellable")
class ShieldsWhatItSends(Toy):
    def make_sink(self) -> ToySink:
        wait = self.wait

        class Sink(ToySink):
            async def send(self, buffers: Sequence[Buffer]) -> None:
                with anyio.CancelScope(shield=True):
                    await wait()
                await super().send(buffers)

        return Sink()


@caught_by("test_waiting_call_cancellable")
class TakesACancellationForAFault(Toy):
    async def wait(self) -> None:
        try:
            await super().wait()
        except anyio.get_cancelled_exc_class():
            raise StorageError("the connection was closed") from None


@caught_by("test_flush")
class FlushesWhatItDoesNotKeep(Toy):
    class Sink(ToySink):
        async def flush(self, tail: Sequence[Buffer]) -> int:
            await super().flush(tail)
            return sum(map(len, tail))

    unfinished = property(lambda self: set(), lambda self, value: None)  # type: ignore[assignment]

    def make_sink(self) -> ToySink:
        return self.Sink()


@caught_by("test_delete")
class MissesWhatItDeletes(Toy):
    async def delete(self, key: str) -> None:
        self.found(key)
        await super().delete(key)


@caught_by("test_delete")
class DeletesByPrefix(Toy):
    async def delete(self, key: str) -> None:
        self.check(key)
        for other in [other for other in self.objects if other.startswith(key)]:
            del self.objects[other]


@caught_by("test_get_and_put")
class IgnoresMaxBytes(Toy):
    async def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        return await super().get(key)


@caught_by("test_root")
class DoesNotSayWhereItIs(Toy):
    root = ""


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
async def test_broken_storage_fails_matching_case(mutant: type[Toy]) -> None:
    assert await fails(MUTANTS[mutant], mutant)
    assert not await fails(MUTANTS[mutant], Toy)


def test_every_case_catches_some_mutant() -> None:
    by_url = {name for name in CASES if name.endswith("_by_url")}
    by_url |= {"test_found_by_scheme", "test_cheap_import_of_plugin", "test_prefix_after_root"}
    in_files = {"test_objects_are_files", "test_flushed_records_survive"}
    # These cases are tested in test_kit_by_url.py and in tests/storage/test_local_files.py.
    assert set(MUTANTS.values()) == set(CASES) - by_url - in_files


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_retry_of_asyncio_cancellation_is_detected() -> None:
    class Retries(Toy):
        async def wait(self) -> None:
            while True:
                try:
                    return await super().wait()
                except anyio.get_cancelled_exc_class():
                    await anyio.lowlevel.checkpoint()  # like the wait before a retry, which a scope cancels, too

    suite = type("Suite", (TestToy,), {"toy": Retries, "__test__": False})()
    with pytest.raises(AssertionError, match=r"head was cancelled by asyncio's task.cancel\(\), .* was swallowed"):
        await suite.test_waiting_call_cancellable()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_asyncio_cancellation_swallowed_by_later_part_is_detected() -> None:
    class SwallowsInAPart(Toy):
        def make_sink(self) -> ToySink:
            wait = self.wait

            class Sink(ToySink):
                async def send(self, buffers: Sequence[Buffer]) -> None:
                    with suppress(anyio.get_cancelled_exc_class()) if self.chunks else nullcontext():
                        await wait()
                    await super().send(buffers)

            return Sink()

    suite = type("Suite", (TestToy,), {"toy": SwallowsInAPart, "__test__": False})()
    with pytest.raises(AssertionError, match=r"send was cancelled by asyncio's task.cancel\(\), .* was swallowed"):
        await suite.test_waiting_call_cancellable()


async def test_storage_may_wait_for_uncancellable_requests() -> None:
    attributes = {"toy": ShieldsItsRequests, "__test__": False, "cancellable_requests": False}
    await type("Suite", (TestToy,), attributes)().test_waiting_call_cancellable()


async def test_endless_case_is_cancelled_and_named() -> None:
    class Endless(Toy):
        async def list_objects(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
            for n in itertools.count():
                yield self.info(f"{n:020}", b"")

    suite = type("Suite", (TestToy,), {"toy": Endless, "__test__": False, "case_seconds": 0.1})()
    with pytest.raises(AssertionError, match=r"test_listing_order did not end within 0.1 s \(case_seconds\)"):
        await suite.test_listing_order()


VIRTUAL = [virtual_backend("asyncio"), virtual_backend("trio")]


@pytest.mark.parametrize("anyio_backend", VIRTUAL, ids=["asyncio", "trio"])
async def test_case_timeout_uses_real_time() -> None:
    class Slow(Toy):
        slow = 10_000.0

    suite = type("Suite", (TestToy,), {"toy": Slow, "__test__": False})()
    await suite.test_get_and_put()
    assert anyio.current_time() > 10_000

    class Hanging(Toy):
        async def wait(self) -> None:
            await anyio.sleep_forever()

    suite = type("Suite", (TestToy,), {"toy": Hanging, "__test__": False, "case_seconds": 0.1})()
    with pytest.raises(AssertionError, match="test_get_and_put did not end"):
        await suite.test_get_and_put()


# Replaced cases ------------------------------------------------------------------------------------------------------


def test_case_replaced_without_reason_is_rejected() -> None:
    with pytest.raises(TypeError, match="test_delete overrides a case of the kit"):

        class Silent(StorageConformance):
            async def test_delete(self) -> None:
                pass


def test_case_removed_or_replaced_by_mixin_is_rejected() -> None:
    class Mixin:
        async def test_delete(self) -> None:
            pass

    with pytest.raises(TypeError, match="test_delete"):
        type("Mixed", (Mixin, StorageConformance), {})
    with pytest.raises(TypeError, match="test_delete"):
        type("Emptied", (StorageConformance,), {"test_delete": None})


def test_replaces_case_requires_reason_and_existing_case() -> None:
    with pytest.raises(TypeError, match="needs a reason"):
        replaces_case("")
    with pytest.raises(TypeError, match="needs a reason"):
        replaces_case(lambda self: None)

    async def test_misspelt(self: object) -> None: ...

    with pytest.raises(TypeError, match="the kit has no case with this name"):
        type("Misspelt", (StorageConformance,), {"test_delte": replaces_case("a reason")(test_misspelt)})


def test_case_replaced_with_reason_is_accepted() -> None:
    class Reasoned(StorageConformance):
        @replaces_case("this store keeps everything")
        async def test_delete(self) -> None: ...

    class Derived(Reasoned):
        pass

    assert Derived.test_delete.replaces_case == "this store keeps everything"
