"""A data set has one schema: records are checked against it, and it may change as long as old records still decode."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import asyncrec
from asyncrec import FixedLen, Schema, VarLen, encode_example, tools
from asyncrec._shards.manifest.manifest import agreed
from asyncrec.errors import ArgumentError, DecodeError, ExampleError, SchemaError

pytestmark = pytest.mark.anyio

PAGE = Schema({"url": FixedLen((), "str"), "body": FixedLen((), "bytes")})
GROWN = Schema({**PAGE.features, "status": FixedLen((), "int64", default=0), "tags": VarLen("str")})
OTHER = Schema({"url": FixedLen((), "str"), "body": FixedLen((), "bytes"), "status": FixedLen((), "int64")})


def page(number: int) -> dict[str, Any]:
    return {"url": f"http://a/{number}", "body": b"x" * number}


async def test_values_round_trip_with_keys(tmp_path: Path) -> None:
    async with asyncrec.open_sharded_writer(tmp_path / "pages", schema=PAGE) as writer:
        tickets = [await writer.write(page(number), key=f"k{number}") for number in range(3)]
        assert await writer.write_many([page(3), page(4)]) == 5
        assert tickets == [1, 2, 3]
        assert writer.schema == PAGE
    async with asyncrec.open_dataset(tmp_path / "pages") as dataset:
        assert [example async for example in dataset.examples()] == [page(number) for number in range(5)]
        assert [record async for record in dataset] == [encode_example(page(number)) for number in range(5)]
        assert PAGE.decode(await dataset.get_by_key("k2")) == page(2)


async def test_misfit_record_uses_no_ticket_or_key(tmp_path: Path) -> None:
    async with asyncrec.open_sharded_writer(tmp_path / "pages", schema=PAGE, on_duplicate="skip") as writer:
        with pytest.raises(
            SchemaError, match=r"the record with the key 'a': feature 'body' is missing; expected FixedLen\(\(\),"
        ):
            await writer.write({"url": "a"}, key="a")
        assert not writer.has("a")
        assert await writer.write(page(1), key="a") == 1
        assert await writer.write(page(1), key="a") == 1
        assert writer.stats().duplicates == 1


@pytest.mark.parametrize("options", [{}, {"open_shards": 3}, {"num_shards": 3}, {"partition_by": lambda data: data}])
async def test_write_many_spreads_schema_values_over_open_shards(tmp_path: Path, options: Any) -> None:
    rows = [page(number) for number in range(500)]
    async with asyncrec.open_sharded_writer(tmp_path / "pages", schema=PAGE, **options) as writer:
        assert await writer.write_many(iter(rows)) == 500
    async with asyncrec.open_dataset(tmp_path / "pages") as dataset:
        found = [example async for example in dataset.examples()]
    assert sorted(found, key=lambda row: len(row["body"])) == rows


async def test_key_is_kept_as_feature_and_listed(tmp_path: Path) -> None:
    path = tmp_path / "pages"
    options: Any = {"schema": PAGE, "key_feature": "url", "on_duplicate": "skip"}
    async with asyncrec.open_sharded_writer(path, **options) as writer:
        await writer.write({"url": "http://a/0", "body": b""})
        await writer.write({"body": b""}, key="http://a/1")
        await writer.write_many([{"url": "http://a/2", "body": b""}, {"url": "http://a/0", "body": b""}])
        await writer.write(encode_example({"url": "http://a/3", "body": b""}))
        assert writer.has("http://a/3")
        with pytest.raises(SchemaError, match="the two must be equal"):
            await writer.write({"url": "http://a/4", "body": b""}, key="http://a/5")
        with pytest.raises(SchemaError, match="the two must be equal"):
            await writer.write({**page(1), "url": "\ud800"}, key="\udcff")
        with pytest.raises(SchemaError, match="key_feature"):
            await writer.write({"body": b""})
    async with asyncrec.open_dataset(path) as dataset:
        urls = [example["url"] async for example in dataset.examples()]
        assert urls == [f"http://a/{number}" for number in range(4)]
        for number, url in enumerate(urls):
            assert await dataset.find(url) == number


@pytest.mark.parametrize("options", [{"schema": PAGE, "key_feature": "nosuch"}, {"key_feature": "url"}])
async def test_unknown_key_feature_is_rejected(tmp_path: Path, options: Any) -> None:
    with pytest.raises(ArgumentError, match="key_feature"):
        async with asyncrec.open_sharded_writer(tmp_path / "pages", **options):
            pass


async def test_incompatible_schema_of_second_run_changes_no_files(tmp_path: Path) -> None:
    path = tmp_path / "pages"
    async with asyncrec.open_sharded_writer(path, schema=PAGE) as writer:
        await writer.write(page(1))
    before = sorted(each.name for each in tmp_path.rglob("*") if each.is_file())
    with pytest.raises(SchemaError, match=r"feature 'status': .* is new and has no default.*mode='replace'"):
        async with asyncrec.open_sharded_writer(path, schema=OTHER):
            pass
    assert sorted(each.name for each in tmp_path.rglob("*") if each.is_file()) == before


async def test_second_run_inherits_schema_of_data_set(tmp_path: Path) -> None:
    path = tmp_path / "pages"
    async with asyncrec.open_sharded_writer(path, schema=PAGE) as writer:
        await writer.write(page(0))
    async with asyncrec.open_sharded_writer(path) as writer:
        assert writer.schema == PAGE
        await writer.write(page(1))
        for wrong in (b"no Example", {"url": "a"}):
            with pytest.raises(ExampleError):
                await writer.write(wrong)
    async with asyncrec.open_sharded_writer(path, validate="none") as writer:
        await writer.write(encode_example(page(2)))
    async with asyncrec.open_dataset(path) as dataset:
        examples = [example async for example in dataset.examples()]
        assert sorted(examples, key=lambda example: example["url"]) == [page(number) for number in range(3)]
    async with asyncrec.open_sharded_writer(path, mode="replace") as writer:
        assert writer.schema is None


async def test_added_feature_with_default_decodes_older_records(tmp_path: Path) -> None:
    path = tmp_path / "pages"
    for schema in (PAGE, GROWN):
        async with asyncrec.open_sharded_writer(path, schema=schema) as writer:
            await writer.write(page(1))
    async with asyncrec.open_dataset(path) as dataset:
        assert dataset.schema == GROWN
        assert [example["status"] async for example in dataset.examples()] == [0, 0]
    report = await tools.verify(path)
    assert report.conflicts == []


async def test_earlier_snapshot_keeps_its_schema_and_metadata(tmp_path: Path) -> None:
    """This includes the snapshot left by a closed writer, whose closing segment is newer than its shards."""
    path = tmp_path / "pages"
    manifests = []
    for run, schema in enumerate((PAGE, GROWN)):
        options: Any = {"schema": schema, "metadata": {"run": run}, "max_shard_records": 2}
        async with asyncrec.open_sharded_writer(path, **options) as writer:
            await writer.write_many([{**page(number), **({"status": 1} if run else {})} for number in range(5)])
        manifests.append(await asyncrec.read_manifest(path))
    for manifest in manifests:
        earlier = await asyncrec.read_manifest(path, at=manifest.id)
        assert (earlier.schema, earlier.metadata) == (manifest.schema, manifest.metadata)
        async with asyncrec.open_dataset(earlier) as dataset:
            assert [example async for example in dataset.examples()]
    assert manifests[0].schema != manifests[1].schema


async def test_late_writer_with_older_schema_keeps_newer_schema(tmp_path: Path) -> None:
    path = tmp_path / "pages"
    async with asyncrec.open_sharded_writer(path, schema=PAGE) as writer:
        await writer.write(page(1))
        async with asyncrec.open_sharded_writer(path, schema=GROWN) as later:
            await later.write({**page(2), "status": 404})
    async with asyncrec.open_dataset(path) as dataset:
        assert dataset.schema == GROWN
        assert sorted([example["status"] async for example in dataset.examples()]) == [0, 404]
    assert (await asyncrec.read_manifest(path)).conflicts == ()


async def test_verify_reports_conflicting_schemas_of_concurrent_writers(tmp_path: Path) -> None:
    path = tmp_path / "pages"
    async with asyncrec.open_sharded_writer(path, schema=PAGE) as writer:
        await writer.write(page(1))
        async with asyncrec.open_sharded_writer(path, schema=OTHER) as second:
            await second.write({**page(2), "status": 404})
    (conflict,) = (await tools.verify(path)).conflicts
    assert "feature 'status'" in conflict


async def test_replacing_writer_may_change_schema(tmp_path: Path) -> None:
    path = tmp_path / "pages"
    async with asyncrec.open_sharded_writer(path, schema=PAGE) as writer:
        await writer.write(page(1))
    async with asyncrec.open_sharded_writer(path, schema=OTHER, mode="replace") as writer:
        await writer.write({**page(2), "status": 404})
    manifest = await asyncrec.read_manifest(path)
    assert manifest.schema == OTHER.to_json()
    assert manifest.conflicts == ()


def test_agreed_schema_decodes_all_records_in_any_order() -> None:
    small, large, other = PAGE.to_json(), GROWN.to_json(), OTHER.to_json()
    assert agreed([("a", small), ("b", large), ("c", small)]) == (large, [])
    assert agreed([("a", large), ("b", small)]) == (large, [])
    assert agreed([]) == (None, [])
    schema, (conflict,) = agreed([("a", small), ("b", other)])
    assert schema == other
    assert conflict.startswith("writer b used a different schema")
    assert agreed([("a", {"v": 1}), ("b", {"v": 2})])[0] == {"v": 2}


async def test_schema_of_wrong_type_is_rejected_on_opening(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="takes a Schema"):
        async with asyncrec.open_sharded_writer(tmp_path / "pages", schema={"a": "int64"}):
            pass
    assert list(tmp_path.iterdir()) == []


async def test_data_set_iterates_in_order_by_batch(tmp_path: Path) -> None:
    path = tmp_path / "pages"
    rows = [page(number) for number in range(300)]
    async with asyncrec.open_sharded_writer(path, schema=PAGE, max_shard_records=70, compression="GZIP") as writer:
        await writer.write_many(rows)
    async with asyncrec.open_dataset(path) as dataset:
        records = aiter(dataset)
        first = [await anext(records) for _ in range(3)]
        rest = [record async for batch in dataset.batches() for record in batch]
        assert first == rest[:3]
        assert rest == [PAGE.encode(row) for row in rows] == [record async for record in dataset]


async def test_rejected_record_is_named_by_key(tmp_path: Path) -> None:
    async with asyncrec.open_sharded_writer(tmp_path / "pages", schema=PAGE, key_feature="url") as writer:
        with pytest.raises(SchemaError, match="the record with the key 'http://a/1': feature 'body'"):
            await writer.write({"url": "http://a/1", "body": 5})


async def test_key_feature_is_found_in_unvalidated_records(tmp_path: Path) -> None:
    path = tmp_path / "pages"
    async with asyncrec.open_sharded_writer(path, schema=PAGE, key_feature="url", validate="none") as writer:
        await writer.write(encode_example({"url": "http://a/1", "body": b"", "other": 1}))
        for wrong in (encode_example({"body": b""}), encode_example({"url": 1, "body": b""}), b"\xff"):
            with pytest.raises((SchemaError, DecodeError), match="pages: "):
                await writer.write(wrong)
    async with asyncrec.open_dataset(path) as dataset:
        assert await dataset.find("http://a/1") == 0
        assert len(dataset) == 1


async def test_segment_log_states_schema_and_metadata_once(tmp_path: Path) -> None:
    """The closing segment, which is read instead of all others, repeats both."""

    def saying() -> dict[str, bool]:
        segments = sorted((tmp_path / "_manifest/pages").glob("w-[0-9]*[1-9].jsonl"))
        heads = {segment.stem: json.loads(segment.read_text().partition("\n")[0]) for segment in segments}
        return {name: bool(head["schema"]) and head["metadata"] == {"run": 7} for name, head in heads.items()}

    options: dict[str, Any] = {"schema": PAGE, "metadata": {"run": 7}, "writer_id": "w", "max_shard_records": 1}
    async with asyncrec.open_sharded_writer(tmp_path / "pages", **options) as writer:
        for number in range(3):
            await writer.write(page(number))
            await writer.commit()
        assert saying() == {"w-000001": True, "w-000002": False, "w-000003": False}
        manifest = await asyncrec.read_manifest(tmp_path / "pages")
        assert (manifest.schema, dict(manifest.metadata)) == (PAGE.to_json(), {"run": 7})
    assert saying()["w-000004"]
    manifest = await asyncrec.read_manifest(tmp_path / "pages")
    assert (manifest.schema, dict(manifest.metadata)) == (PAGE.to_json(), {"run": 7})
