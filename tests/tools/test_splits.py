"""Tables and labelled folders become splits with the same share of every label; the manifests list the label names."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tool_data import names

import asyncrec
from asyncrec import encode_example, tools
from asyncrec._datasets.from_csv.csv_rows import CsvRows
from asyncrec.errors import ArgumentValueError, DatasetError, ObjectNotFoundError
from asyncrec.storage._base import Storage
from asyncrec.tools import _splits

pytestmark = pytest.mark.anyio


async def table(storage: Storage, rows: int = 20) -> None:
    lines = ["file,kind,weight,count,note"]
    for number in range(rows):
        kind = ("cat", "dog")[number % 2]
        await storage.put(f"in/files/{number}.bin", b"bytes %d" % number)
        lines.append(f'files/{number}.bin,{kind},{number}.5,{number},"a, ""note"""')
    await storage.put("in/table.csv", "\n".join(lines).encode())


async def read(storage: Storage, path: str) -> list[dict[str, object]]:
    schema = asyncrec.Schema.from_json((await tools.schema(path, storage=storage)).schema)
    async with tools.open_records(path, storage=storage) as stream:
        return [schema.decode(found.data) async for records in stream for found in records]


async def test_from_csv_writes_splits_of_table(storage: Storage) -> None:
    await table(storage)
    report = await tools.from_csv(
        "in/table.csv", "out", label="kind", files=["file"], ratios=[0.6, 0.2, 0.2], seed=3,
        storage=storage, target_storage=storage,
    )  # fmt: skip
    assert report.records == {"train": 12, "eval": 4, "test": 4}
    assert report.labels == ["cat", "dog"]
    seen = []
    for split, count in report.records.items():
        rows = await read(storage, f"out/{split}")
        assert Counter(int(row["kind"]) for row in rows) == {0: count // 2, 1: count // 2}  # type: ignore[call-overload]  # int64
        for row in rows:
            number = int(row["count"])  # type: ignore[call-overload]  # int64
            assert row["file"] == b"bytes %d" % number
            assert row["kind"] == number % 2
            assert row["weight"] == number + 0.5
            assert row["note"] == 'a, "note"'
            seen.append(number)
        manifest = await asyncrec.read_manifest(f"out/{split}", storage=storage)
        assert manifest.metadata["labels"] == ["cat", "dog"]
    assert sorted(seen) == list(range(20))


async def test_from_folder_uses_subfolders_as_labels(storage: Storage) -> None:
    for number in range(10):
        for kind in ("dog", "cat"):
            await storage.put(f"in/{kind}/deep/{number}.png", b"%s %d" % (kind.encode(), number))
    await storage.put("in/README", b"")
    await storage.put("in/_hidden/x", b"")
    report = await tools.from_folder("in", "out", ratios=0.8, storage=storage, target_storage=storage)
    assert report.records == {"train": 16, "eval": 4}
    for row in await read(storage, "out/train"):
        name = ["cat", "dog"][int(row["label"])]  # type: ignore[call-overload]  # int64
        assert str(row["path"], "utf-8").startswith(f"{name}/deep/")  # type: ignore[call-overload]  # bytes
        assert row["data"].startswith(name.encode())  # type: ignore[attr-defined]  # bytes
    again = await tools.from_folder("in", "out", ratios=0.8, storage=storage, target_storage=storage)
    assert again.records == report.records
    assert len(await read(storage, "out/train")) == 16


async def test_from_folder_refuses_target_inside_its_source(storage: Storage) -> None:
    for number in range(10):
        await storage.put(f"in/cat/{number}.png", b"%d" % number)
    for target in ("in/out", "in/cat", "in/deep/out/"):
        with pytest.raises(ValueError, match="the target is inside the source in"):
            await tools.from_folder("in", target, storage=storage, target_storage=storage)
    await tools.from_folder("in/", "inside", storage=storage, target_storage=storage)
    for _ in range(2):
        report = await tools.from_folder("in", "in/_out", storage=storage, target_storage=storage)
        assert (report.labels, sum(report.records.values())) == (["cat"], 10)


async def test_from_folder_refuses_linked_target_inside_source(tmp_path: Path) -> None:
    (tmp_path / "in" / "cat").mkdir(parents=True)
    (tmp_path / "in" / "cat" / "1.png").write_bytes(b"1")
    (tmp_path / "link").symlink_to(tmp_path / "in")
    with pytest.raises(ValueError, match="the target is inside the source"):
        await tools.from_folder(tmp_path / "in", tmp_path / "link" / "out")


async def test_slow_row_and_file_work_runs_in_threads(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    here = threading.get_ident()
    encode, row = encode_example, CsvRows.__getitem__
    threads: list[int] = []
    rows: list[int] = []

    def encoded(features: Mapping[str, Any], **options: Any) -> bytes:
        if len(features["file"]) > 1000:
            threads.append(threading.get_ident())
        return encode(features, **options)

    def parsed(self: CsvRows, number: int) -> list[str]:
        if threading.get_ident() == here:
            rows.append(number)
        return row(self, number)

    monkeypatch.setattr(_splits, "encode_example", encoded)
    monkeypatch.setattr(CsvRows, "__getitem__", parsed)
    await table(storage)
    await storage.put("in/files/3.bin", bytes(2 << 20))
    await tools.from_csv("in/table.csv", "out", label="kind", files=["file"], storage=storage, target_storage=storage)
    assert threads
    assert here not in threads
    assert len(rows) == 20, "each once, when its record is made"


async def test_same_seed_gives_same_splits(storage: Storage) -> None:
    await table(storage)
    orders = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        await tools.from_csv("in/table.csv", name, seed=seed, storage=storage, target_storage=storage)
        orders.append([row["count"] for row in await read(storage, f"{name}/train")])
    assert orders[0] == orders[1] != orders[2]


@pytest.mark.parametrize(
    ("content", "options", "said"),
    [
        ("a,b\n1\n2,3", {}, "1 cell, but there are 2 columns"),
        ("a,a\n1,2", {}, "a different name for each column"),
        ("a\n1", {}, "too few, because the split 'eval' would be empty"),
        ('a\n"1', {}, "line 2"),
    ],
)
async def test_malformed_table_is_rejected_with_reason(
    storage: Storage, content: str, options: dict[str, str], said: str
) -> None:
    await storage.put("x.csv", content.encode())
    with pytest.raises(DatasetError, match=said):
        await tools.from_csv("x.csv", "out", storage=storage, target_storage=storage, **options)  # type: ignore[arg-type]  # as listed
    assert await names(storage, "out") == []


async def test_key_column_is_text_and_keys_records(storage: Storage) -> None:
    await table(storage)
    report = await tools.from_csv(
        "in/table.csv", "out", label="kind", key="count", files=["file"], storage=storage, target_storage=storage
    )
    assert report.types["count"] == "str"
    found = set()
    for split, records in report.records.items():
        async with asyncrec.open_dataset(f"out/{split}", storage=storage) as dataset:
            for number in range(20):
                try:
                    record = await dataset.get_by_key(str(number))
                except KeyError:
                    continue
                assert dataset.schema is not None
                assert dataset.schema.decode(record)["file"] == b"bytes %d" % number
                found.add((split, number))
            assert len([each for each in found if each[0] == split]) == records
    assert len(found) == 20


async def test_repeated_key_is_rejected_with_both_lines(storage: Storage) -> None:
    await storage.put("x.csv", b"id,n\na,1\nb,2\na,3\n")
    with pytest.raises(DatasetError, match=r"x\.csv, line 4, row .*: line 2 has the same key"):
        await tools.from_csv("x.csv", "out", key="id", storage=storage, target_storage=storage)
    with pytest.raises(ArgumentValueError, match="'id' is used more than once; a column can be only one of label, key"):
        await tools.from_csv("x.csv", "out", key="id", label="id", storage=storage, target_storage=storage)
    assert await names(storage, "out") == []


async def test_number_column_with_text_cells_notes_first_line(
    storage: Storage,
) -> None:
    rows = [f'{n},{n},{n},"a\nb",{n},{n}' for n in range(10)]  # each row has two lines
    rows[4] = '4,three,4,"a\nb",,x'
    rows[6] = '6,,6.5,"a\nb",6,x'
    await storage.put("x.csv", "\n".join(["whole,slip,real,text,kind,file", *rows]).encode())
    for name in "0123456789x":
        await storage.put(name, b"")
    report = await tools.from_csv("x.csv", "out", label="kind", files=["file"], storage=storage, target_storage=storage)
    assert report.types == {
        "file": "bytes", "kind": "int64", "real": "float32", "slip": "str", "text": "str", "whole": "int64"
    }  # fmt: skip
    assert report.notes == [
        "slip is text: line 10 has 'three'",
        "kind is empty in 1 row, the first at line 10: these rows form a class of their own, ''",
        "kind has a different value in each of 10 rows: if it is a column of keys, pass it as --key (key=)",
    ]
    assert report.to_json()["notes"] == report.notes


async def test_column_with_number_out_of_range_is_text(storage: Storage) -> None:
    rows = [f"{n},{n},{n}" for n in range(10)]
    rows[3] = f"{2**63},1e39,inf"
    await storage.put("x.csv", "\n".join(["id,real,infinite", *rows]).encode())
    report = await tools.from_csv("x.csv", "out", storage=storage, target_storage=storage)
    assert report.types == {"id": "str", "real": "str", "infinite": "float32"}
    assert report.notes == [f"id is text: line 5 has '{2**63}'", "real is text: line 5 has '1e39'"]


async def test_empty_labels_and_too_many_classes_are_noted(storage: Storage) -> None:
    cells = ["", *("ab"[n % 2] for n in range(10)), ""]
    await storage.put("few.csv", "\n".join(["n,kind", *(f"{n},{cell}" for n, cell in enumerate(cells))]).encode())
    few = await tools.from_csv("few.csv", "few", label="kind", storage=storage, target_storage=storage)
    assert few.labels == ["", "a", "b"]
    assert few.notes == ["kind is empty in 2 rows, the first at line 2: these rows form a class of their own, ''"]
    await storage.put("many.csv", "\n".join(["n,kind", *(f"{n},{n % 1001}" for n in range(2002))]).encode())
    many = await tools.from_csv("many.csv", "many", label="kind", storage=storage, target_storage=storage)
    assert many.notes == ["kind has 1,001 classes in 2,002 rows; check that it is the column of labels"]


async def test_json_lines_are_not_mistaken_for_table(storage: Storage) -> None:
    """Otherwise, some would be read as a table with one column, named after the first row."""
    for line in ('{"n": 1}', '{"n": 1, "text": "a, b"}'):
        await storage.put("rows.csv", f"{line}\n{line}\n".encode())
        with pytest.raises(DatasetError, match=r"rows.csv: .*JSON lines.*asyncrec convert"):
            await tools.from_csv("rows.csv", "out", storage=storage, target_storage=storage)
    assert await names(storage, "out") == []


@pytest.mark.parametrize("options", [{"label": "kind"}, {"files": ["kind"]}])
async def test_missing_column_raises_argument_error(storage: Storage, options: dict[str, Any]) -> None:
    await storage.put("x.csv", b"a\n1\n2")
    with pytest.raises(ArgumentValueError, match="no column 'kind'; the columns are a"):
        await tools.from_csv("x.csv", "out", storage=storage, target_storage=storage, **options)
    assert await names(storage, "out") == []


async def test_missing_folder_raises_not_found(storage: Storage) -> None:
    await storage.put("in", b"a file of that name is none")
    with pytest.raises(ObjectNotFoundError, match="in: the folder does not exist or is empty"):
        await tools.from_folder("in", "out", storage=storage, target_storage=storage)


async def test_missing_file_writes_nothing(storage: Storage) -> None:
    await table(storage)
    await storage.delete("in/files/7.bin")
    with pytest.raises(ObjectNotFoundError, match=r"7\.bin"):
        await tools.from_csv("in/table.csv", "out", files=["file"], storage=storage, target_storage=storage)
    assert await names(storage, "out") == []


async def test_folder_without_subfolders_is_rejected(storage: Storage) -> None:
    await storage.put("in/x.png", b"")
    with pytest.raises(DatasetError, match="no subfolder contains files"):
        await tools.from_folder("in", "out", storage=storage, target_storage=storage)


@pytest.mark.parametrize(
    ("cell", "kind", "value"),
    [
        ("7", "int64", 7),
        ("-9223372036854775808", "int64", -(1 << 63)),
        ("9223372036854775808", "str", "9223372036854775808"),
        ("-9223372036854775809", "str", "-9223372036854775809"),
        ("1_000", "str", "1_000"),
        ("1_0.5", "str", "1_0.5"),
        ("0.5", "float32", 0.5),
        ("one", "str", "one"),
    ],
)
async def test_number_column_accepts_only_representable_plain_numbers(
    storage: Storage, cell: str, kind: str, value: object
) -> None:
    await storage.put("in/numbers.csv", "\n".join(["n", *[cell] * 10]).encode())
    await tools.from_csv("in/numbers.csv", "numbers", ratios=[0.5, 0.5], storage=storage, target_storage=storage)
    schema = asyncrec.Schema.from_json((await tools.schema("numbers/train", storage=storage)).schema)
    assert schema.features == {"n": asyncrec.FixedLen((), kind)}  # type: ignore[arg-type]  # as listed
    assert [row["n"] for row in await read(storage, "numbers/train")] == [value] * 5


async def test_empty_cell_among_numbers_is_absent_value(storage: Storage) -> None:
    await storage.put("in/gaps.csv", b"score,count,text,nothing\n1.5,3,a,\n,4,,\n2.5,,b,\n")
    report = await tools.from_csv("in/gaps.csv", "gaps", ratios=[0.5, 0.5], storage=storage, target_storage=storage)
    assert report.types == {"score": "float32", "count": "int64", "text": "str", "nothing": "str"}
    assert report.notes == []
    found = [*await read(storage, "gaps/train"), *await read(storage, "gaps/eval")]
    assert sorted((*row["score"], *row["count"], row["text"], row["nothing"]) for row in found if row["text"]) == [
        (1.5, 3, "a", ""),
        (2.5, "b", ""),
    ]
    assert [(list(row["score"]), list(row["count"])) for row in found if not row["text"]] == [([], [4])]
