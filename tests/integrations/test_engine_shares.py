"""The records that an engine's tasks write are in the data set once the driver has committed them, and not before."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from asyncrec import FixedLen, Schema, blocking
from asyncrec.errors import SchemaError
from asyncrec.integrations._engines import agree_on_types, check_types, groups, open_driver_job, read_size, write_share
from asyncrec.integrations.arrow import Part, read_batches, schema_of, write_batches
from asyncrec.integrations.arrow._types import encode_arrow

TABLE = pa.table({"id": range(40), "body": [b"%d" % n * 100_000 for n in range(40)]})


def write(share: Any, batch: Any, schema: Schema | None = None, part: int = 0, types: Any = None) -> Any:
    return write_share(
        pickle.loads(pickle.dumps(share)),
        [batch],
        pickle.loads(pickle.dumps(types or agree_on_types(share.path, schema, {}, mode="append"))),
        part=part,
        narrow=True,
        limits={"max_shard_records": 8},
        storage_options=None,
    )


def test_rows_appear_only_after_commit(tmp_path: Path) -> None:
    schema = schema_of(TABLE.schema)
    with open_driver_job(tmp_path / "d", job_id="job", schema=schema.to_json()) as job:
        entries = [*write(job.share, TABLE.slice(20), None, 1), *write(job.share, TABLE.slice(0, 20), schema, 0)]
        assert [entry.records for entry in entries] == [8, 8, 4] * 2
        job.commit(entries, 40)
    assert read_batches(tmp_path / "d").read_all().to_pydict() == TABLE.to_pydict()
    with open_driver_job(tmp_path / "d", job_id="job") as again:
        assert again.committed is not None


def test_invalid_row_is_named_and_leaves_no_shard(tmp_path: Path) -> None:
    bodies = [b"x" * 200_000 for _ in range(20)]
    table = pa.table({"id": [*range(19), None], "body": bodies})  # more than a MiB, so it is encoded in pieces
    schema = Schema({"id": FixedLen((), "int64"), "body": FixedLen((), "bytes")})
    with open_driver_job(tmp_path / "d") as job:
        with pytest.raises(SchemaError, match="'id': row 19 is null"):
            write(job.share, table, schema)
    assert list(tmp_path.glob("d-*")) == []
    assert blocking.recover(tmp_path / "d").shards == ()


def test_parts_are_grouped_in_order_and_by_size() -> None:
    parts = tuple(Part(path=f"{n}", compression="", records=1, bytes=size) for n, size in enumerate([4, 1, 1, 1, 1, 4]))
    dealt = groups(parts, 3)
    assert [part for group in dealt for part in group] == list(parts)
    assert [sum(map(read_size, group)) for group in dealt] == [4, 4, 4]
    assert groups((), 3) == []
    assert len(groups(parts, 100)) == 6


@pytest.mark.parametrize("known", [True, False])
def test_times_of_tasks_are_cast_to_stored_unit(tmp_path: Path, known: bool) -> None:
    """This also works if the schema of the rows is unknown before the tasks run."""
    stored = pa.table({"when": pa.array([7_000_000], pa.timestamp("us"))})
    write_batches(tmp_path / "d", stored)
    batch = pa.table({"when": pa.array([8000], pa.timestamp("ms"))})
    schema = schema_of(batch.schema) if known else None
    metadata = {"ARROW:schema": encode_arrow(batch.schema)} if known else {}
    types = agree_on_types(tmp_path / "d", schema, metadata, mode="append")
    with open_driver_job(tmp_path / "d", metadata=types.metadata) as job:
        entries = write(job.share, batch, types=types)
        check_types(job.share.path, types)
        job.commit(entries, 1)
    found = read_batches(tmp_path / "d").read_all().column("when").combine_chunks().sort()
    assert found.equals(pa.array([7_000_000, 8_000_000], pa.timestamp("us")))
    lossy = pa.table({"when": pa.array([1], pa.timestamp("ns"))})
    with open_driver_job(tmp_path / "d", metadata=types.metadata) as job:
        with pytest.raises(SchemaError, match=r"d: column 'when': row 0 of the batch: .*would lose data"):
            write(job.share, lossy, types=types)
        with pytest.raises(SchemaError, match=r"d: column 'when' is duration"):
            write(job.share, pa.table({"when": pa.array([1], pa.duration("us"))}), types=types)


def test_unit_written_during_job_is_found_before_commit(tmp_path: Path) -> None:
    batch = pa.table({"when": pa.array([8000], pa.timestamp("ms"))})
    told = schema_of(batch.schema), {"ARROW:schema": encode_arrow(batch.schema)}
    types = agree_on_types(tmp_path / "d", *told, mode="append")
    write_batches(tmp_path / "d", batch)
    check_types(tmp_path / "d", types)
    write_batches(tmp_path / "e", pa.table({"when": pa.array([7_000_000], pa.timestamp("us"))}))
    with pytest.raises(SchemaError, match="another writer, with other units of time"):
        check_types(tmp_path / "e", types)
    check_types(tmp_path / "e", agree_on_types(tmp_path / "e", *told, mode="replace"))
