"""With ``newest=``, a data set returns the newest version of each key, as a plain Python model determines it."""

from __future__ import annotations

import copy
from contextlib import AsyncExitStack
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import asyncrec
from asyncrec import blocking, tools
from asyncrec.errors import DatasetError
from asyncrec.storage import MemoryStorage, Storage
from asyncrec.tools import Where

from .versioned import Page, Site, number_of

pytestmark = pytest.mark.anyio

KEYS = [None, "a", "b", "c", "d", "e"]
INTS = st.integers(-3, 3)


@st.composite
def commits(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Draw a series of commits: the pages, writer and shards of each, and whether a checkpoint follows.

    The names of the writers do not sort in the order of the commits, and a key may be repeated within a shard.
    """
    pages = st.lists(st.builds(Page, st.sampled_from(KEYS), st.none() | INTS), min_size=1, max_size=12)
    names = draw(st.permutations("abcdef"))
    return [
        {
            "pages": draw(pages),
            "writer": name,
            "per_shard": draw(st.integers(1, 5)),
            "compression": draw(st.sampled_from(["", "GZIP"])),
            "compacted": draw(st.booleans()),
        }
        for name in names[: draw(st.integers(1, 4))]
    ]


async def made(drawn: list[dict[str, Any]], storage: Storage | None = None) -> Site:
    """Write these commits to a data set; at least one key is always repeated, with dates."""
    site = Site(MemoryStorage() if storage is None else storage)
    await site.commit([Page("a", 0), Page("b", 1), Page("a", -2)], "0")
    for commit in copy.deepcopy(drawn):
        compacted = commit.pop("compacted")
        await site.commit(commit.pop("pages"), commit.pop("writer"), **commit)
        if compacted:
            await site.compact()
    return site


def near_and_far(far: bool) -> MemoryStorage:
    storage = MemoryStorage()
    if far:
        storage.read_ahead = 1 << 20
    return storage


PROPERTY = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@PROPERTY
@given(drawn=commits(), far=st.booleans(), first_all=st.booleans())
async def test_lookups_and_iterations_return_newest_versions(
    drawn: list[dict[str, Any]], far: bool, first_all: bool
) -> None:
    site = await made(drawn, near_and_far(far))
    async with asyncrec.open_dataset("pages", storage=site.storage, newest="date") as dataset:
        if first_all:  # so that look-ups know the newest versions already
            assert {number_of(record) async for record in dataset} == site.newest()
        for key in {page.key for page in site.records if page.key is not None}:
            newest = site.dated(key)[-1]
            assert number_of(await dataset.get_by_key(key)) == newest
            assert number_of(await dataset.get(await dataset.find(key))) == newest
            assert [number_of(record) for record in await dataset.history(key)] == site.dated(key)
        found = [number_of(record) async for batch in dataset.batches() for record in batch]
        assert sorted(found) == sorted(site.newest())
        assert len(dataset) == len(site.records)
        with pytest.raises(KeyError):
            await dataset.history("none")
    async with asyncrec.open_dataset("pages", storage=site.storage) as dataset:
        for key in {page.key for page in site.records if page.key is not None}:
            assert [number_of(record) for record in await dataset.history(key)] == site.history(key)
            assert number_of(await dataset.get_by_key(key)) == site.history(key)[0]


@PROPERTY
@given(st.lists(st.tuples(st.sampled_from("abc"), st.lists(st.builds(Page, st.sampled_from("xyz"), INTS), max_size=3))))
async def test_last_committed_of_equal_versions_is_newest(steps: list[tuple[str, list[Page]]]) -> None:
    """The writers are open at the same time, and their shards are named for the order in which they were opened."""
    site = Site(MemoryStorage())
    await site.commit([Page("x", -9), Page("x", -8)], "0")
    async with AsyncExitStack() as stack:
        writers = {}
        for name in "cab":
            opening = asyncrec.open_sharded_writer("pages", storage=site.storage, writer_id=name, on_duplicate="write")
            writers[name] = await stack.enter_async_context(opening)
        for name, pages in steps:
            await site.write(writers[name], pages)
            await writers[name].commit()
    async with asyncrec.open_dataset("pages", storage=site.storage, newest="date") as dataset:
        for key in {page.key for page in site.records}:
            assert [number_of(record) for record in await dataset.history(str(key))] == site.dated(str(key))
        assert {number_of(record) async for record in dataset} == site.newest()


@PROPERTY
@given(drawn=commits(), mode=st.sampled_from(["block", "buffer", "global"]), data=st.data())
async def test_epoch_yields_each_newest_version_once(
    drawn: list[dict[str, Any]], mode: Any, data: st.DataObject
) -> None:
    """This holds for any number of workers, even if that number changes when a state is resumed."""
    site = await made(drawn)
    size, first, second = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
    options = {"mode": mode, "buffer_size": data.draw(st.sampled_from([2, 5, 100])), "block_bytes": 40}
    found: list[int] = []
    async with asyncrec.open_dataset("pages", storage=site.storage, newest="date") as dataset:
        rounds = data.draw(st.integers(0, max(0, len(site.newest()) // (size * first) - 1)))
        states = []
        for worker in range(first):
            if first * size > len(site.newest()):
                return
            async with dataset.shuffled(worker=(worker, first), **options) as stream:
                batches = stream.batches(size)
                for _ in range(rounds):
                    found += map(number_of, await anext(batches))
                states.append(stream.state_dict())
        assert all(state == states[0] for state in states)
        left = len(site.newest()) - len(found)
        for worker in range(second):
            async with dataset.shuffled(worker=(worker, second), **options) as stream:
                stream.load_state_dict(states[0])
                try:
                    found += [number_of(record) async for batch in stream.batches(1) for record in batch]
                except ValueError:
                    assert second > left
                    return
    assert len(found) == len(set(found))
    assert set(found) <= site.newest()
    assert len(site.newest()) - len(found) < second


@PROPERTY
@given(drawn=commits(), least=st.none() | INTS)
async def test_filter_tests_newest_version_only(drawn: list[dict[str, Any]], least: int | None) -> None:
    site = await made(drawn)
    where = [] if least is None else [Where("date", str(least), ">=")]
    stores: dict[str, Any] = {"storage": site.storage, "target_storage": site.storage}
    report = await tools.filter("pages", "new", newest="date", where=where, **stores)
    wanted = {
        number
        for number in site.newest()
        if least is None or (site.records[number].date is not None and site.records[number].date >= least)
    }
    assert (report.read, report.records) == (len(site.records), len(wanted))
    async with asyncrec.open_dataset("new", storage=site.storage) as dataset:
        assert {number_of(record) async for record in dataset} == wanted
    assert (await asyncrec.read_manifest("new", storage=site.storage)).metadata["filtered"]["newest"] == "date"


async def test_version_table_spilled_to_disk_returns_same_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncrec._sampling.random_access.newest._MEMORY", 2000)
    site = Site(MemoryStorage())
    for turn in range(6):
        pages = [Page(f"k{(n * 7 + turn) % 90}", (n * 13 + turn * 5) % 31) for n in range(60)]
        await site.commit(pages, "zyxwvu"[turn], per_shard=17)
        if turn == 3:
            await site.compact()
    async with asyncrec.open_dataset("pages", storage=site.storage, newest="date") as dataset:
        assert {number_of(record) async for record in dataset} == site.newest()


async def test_balanced_batches_contain_newest_versions_only() -> None:
    site = Site(MemoryStorage())
    await site.commit([Page("a", 0), Page("b", 0), Page("a", 1), Page("c", 1), Page(None, 2)], "w")
    async with (
        asyncrec.open_dataset("pages", storage=site.storage, newest="date") as dataset,
        asyncrec.ClassBalancedSampler(dataset, 2, 1, class_feature="date") as sampler,
    ):
        assert sampler.classes == (0, 1, 2)
        drawn = {number_of(record) for _ in range(30) for record in await anext(sampler)}
        assert drawn == site.newest() == {1, 2, 3, 4}


async def test_state_of_another_feature_is_rejected() -> None:
    storage = MemoryStorage()
    async with asyncrec.open_sharded_writer("pages", storage=storage) as writer:
        for number in range(8):
            await writer.write(asyncrec.encode_example({"n": number, "m": -number}), key=f"k{number}")
    features = (None, "n", "m")
    states = {}
    for feature in features:
        async with asyncrec.open_dataset("pages", storage=storage, newest=feature) as dataset:
            async with dataset.shuffled() as stream:
                await anext(stream)
                states[feature] = stream.state_dict()
            async with asyncrec.ClassBalancedSampler(dataset, 2, 1, class_feature="n") as sampler:
                states[feature, "balanced"] = sampler.state_dict()
    for here in features:
        for taken in features:
            async with asyncrec.open_dataset("pages", storage=storage, newest=here) as dataset:
                for stream, state in (
                    (dataset.shuffled(), states[taken]),
                    (asyncrec.ClassBalancedSampler(dataset, 2, 1, class_feature="n"), states[taken, "balanced"]),
                ):
                    if here == taken:
                        stream.load_state_dict(state)
                        continue
                    with pytest.raises(ValueError, match=f"taken with newest={taken!r}, but this stream has {here!r}"):
                        stream.load_state_dict(state)


@pytest.mark.parametrize("entered", [False, True])
async def test_damaged_place_in_state_is_rejected(entered: bool) -> None:
    """Until the data set has counted its newest versions, any record's place could be valid."""
    site = Site(MemoryStorage())
    await site.commit([Page("a", n) for n in range(9)] + [Page("b", 1)], "w")
    async with asyncrec.open_dataset("pages", storage=site.storage, newest="date") as dataset:
        async with dataset.shuffled() as stream:
            state = {**stream.state_dict(), "position": 3}
        stream = dataset.shuffled()
        with pytest.raises(ValueError, match="position 3 does not exist in a stream of 2 records"):
            if entered:
                async with stream:
                    stream.load_state_dict(state)
            else:
                stream.load_state_dict(state)
                await stream.__aenter__()


@pytest.mark.parametrize("entered", [False, True])
async def test_state_without_its_newest_records_is_rejected(entered: bool) -> None:
    """A stream that has not been entered does not know them, but it is at its beginning."""
    site = Site(MemoryStorage())
    await site.commit([Page(f"k{n}", 1) for n in range(9)], "w")
    async with asyncrec.open_dataset("pages", storage=site.storage, newest="date") as dataset:
        beginning = dataset.shuffled(seed=1).state_dict()
        async with dataset.shuffled(seed=1) as stream:
            first = await anext(stream)
            state = stream.state_dict()
        stream = dataset.shuffled(seed=1)
        if entered:
            await stream.__aenter__()
        lost = {name: value for name, value in state.items() if name != "newest_records"}
        for damaged in (lost, {**state, "newest_records": 5}):
            with pytest.raises(ValueError, match=r"newest_records=(None|5), but .*: the state is damaged"):
                stream.load_state_dict(damaged)
        stream.load_state_dict(beginning)
        if not entered:
            await stream.__aenter__()
        assert await anext(stream) == first
        await stream.__aexit__(None, None, None)


async def test_newest_option_requires_keys() -> None:
    site = Site(MemoryStorage())
    await site.commit([Page(None, 1)], "w")
    with pytest.raises(DatasetError, match="pages: no record in this data set was written with a key"):
        async with asyncrec.open_dataset("pages", storage=site.storage, newest="date"):
            pass
    await asyncrec.write_records("one.tfrecord", [b"x"], storage=site.storage)
    async with asyncrec.open_dataset("one.tfrecord", storage=site.storage, newest="date") as dataset:
        with pytest.raises(DatasetError, match="was written with a key"):
            async with dataset.shuffled():
                pass
    with pytest.raises(DatasetError, match="only a data set has keys"):
        await tools.filter("one.tfrecord", "b", newest="date", storage=site.storage, target_storage=site.storage)


async def test_newest_option_requires_orderable_feature(tmp_path: Any) -> None:
    schema = asyncrec.Schema({"date": asyncrec.FixedLen((), "str"), "box": asyncrec.FixedLen((4,), "int64")})
    with blocking.open_sharded_writer(tmp_path / "pages", schema=schema) as writer:
        writer.write({"date": "2026", "box": [1, 2, 3, 4]}, key="a")
    for feature, said in (
        ("dat", "no feature 'dat'; the features are box, date"),
        ("box", "have no order"),
        ("", "is"),
    ):
        with pytest.raises(ValueError, match=said):
            async with asyncrec.open_dataset(tmp_path / "pages", newest=feature):
                pass
    with pytest.raises(TypeError, match="must be the name of a feature, not bool"):
        async with asyncrec.open_dataset(tmp_path / "pages", newest=True):  # type: ignore[arg-type]
            pass


async def test_schemaless_records_define_available_features() -> None:
    site = Site(MemoryStorage())
    await site.commit([Page("a", 1), Page("a", 2), Page("b", None)], "w")
    async with asyncrec.open_dataset("pages", storage=site.storage, newest="dat") as dataset:
        with pytest.raises(ValueError, match=r"among the 2 .*no feature 'dat'; the features are date, n"):
            async with dataset.shuffled():
                pass
    await site.commit([Page("a", b"x")], "v")
    async with asyncrec.open_dataset("pages", storage=site.storage, newest="date") as dataset:
        for ask in (dataset.get_by_key, dataset.find, dataset.history):
            with pytest.raises(ValueError, match="has values of different types"):
                await ask("a")
