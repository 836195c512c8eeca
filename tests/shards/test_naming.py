"""`asyncrec._shards.manifest.names`: the names of a data set's objects."""

from __future__ import annotations

import pytest

from asyncrec._shards.manifest import names as naming


def test_fixed_shard_names_follow_tensorflow_pattern() -> None:
    assert naming.fixed_shard_name("pages", 0, 8) == "pages-00000-of-00008.tfrecord"


def test_shard_sidecars_are_not_data_files() -> None:
    shard = naming.rolling_shard_name("pages", "67a1", 3)
    assert shard == "pages-67a1-000003.tfrecord"
    assert naming.is_data(shard)
    for key in (
        naming.index_key(shard),
        naming.keys_key(shard),
        naming.segment_key("pages", "67a1", 3),
        f".{shard}.67a1.partial",
    ):
        assert not naming.is_data(key)


def test_writer_ids_of_one_second_differ_and_are_valid() -> None:
    """With only 24 random bits, 30,000 ids made in one second would contain about 27 duplicates."""
    ids = {naming.new_writer_id() for _ in range(30_000)}
    assert len(ids) == 30_000
    assert {naming.validate_writer_id(writer) for writer in ids} == ids


@pytest.mark.parametrize("writer", ["", "a-b", "a/b", "..", "a b", "x" * 65, ".hidden", "ü"])
def test_ambiguous_writer_id_is_rejected(writer: str) -> None:
    with pytest.raises(ValueError, match="becomes part of file names"):
        naming.validate_writer_id(writer)


def test_source_turns_are_named_by_source_hash() -> None:
    key = naming.source_turn_key("pages", "topic/3", 12)
    assert key == "_manifest/pages/_source-b81fbb1c88839515-000012.json"
    assert naming.source_turn_of(key.removeprefix("_manifest/pages/")) == ("b81fbb1c88839515", 12)


@pytest.mark.parametrize(
    "file",
    [
        "_source-b81fbb1c88839515-000000.json",
        "_source-b81fbb1c88839515-0000012.json",
        "_source-b81fbb1c88839515-12.json",
        "_source-b81fbb1c8883951F-000012.json",
        "_source-b81fbb1c8883951-000012.json",
        "_source-b81fbb1c88839515-000012.jsonl",
        "_claim-000012.json",
    ],
)
def test_other_names_are_not_source_turns(file: str) -> None:
    assert naming.source_turn_of(file) is None
