"""The commit race of delta-rs, PyIceberg and Lance, if they are installed: rows of `commits`.

    .venv-bench/bin/pip install deltalake "pyiceberg[sql-sqlite,pyarrow]" pylance

Each writer has its own client and keeps its table open. Each commit is one call that appends ten rows. Retries are
the library's own, with its default limit. After a failed commit, the writer opens the newest version and continues with
its next batch, without repeating the failed one. PyIceberg's catalog is SQLite in a file on a tmpfs, whose lock its
writers wait for up to 60 s; its pools have 64 threads instead of six and eight. Lance's writers have a cache of 4 MiB
each.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Commit = Callable[[list[bytes]], None]


@dataclass(frozen=True)
class Place:
    """The store, and a folder for a catalog."""

    endpoint: str
    folder: str


@dataclass(frozen=True)
class Peer:
    """A library to compare with. Its functions take the place and an access key.

    Attributes:
        modules: the modules that it imports.
        distribution: its name for `pip`.
        tries: a part of the key that every attempt to commit puts.
        create: creates the table.
        connect: opens the table for a writer, and returns a function that commits a batch.
        count: opens the table, and returns its number of records.
        read: returns all of its records.
    """

    modules: tuple[str, ...]
    distribution: str
    tries: str
    create: Callable[[Place, str], object]
    connect: Callable[[Place, str], Commit]
    count: Callable[[Place, str], int]
    read: Callable[[Place, str], list[bytes]]


SECRET = "of-a-store-that-checks-nothing"


def _batch(records: list[bytes]) -> Any:
    import pyarrow

    return pyarrow.table({"record": pyarrow.array(records, pyarrow.binary())})


# delta-rs ---------------------------------------------------------------------------------------------------------

_DELTA = "s3://bench/delta"


def _options(place: Place, key: str) -> dict[str, str]:
    return {
        "aws_endpoint": place.endpoint, "aws_region": "us-east-1", "aws_access_key_id": key,
        "aws_secret_access_key": SECRET, "allow_http": "true",
    }  # fmt: skip


def _delta_options(place: Place, key: str) -> dict[str, str]:
    return {**_options(place, key), "conditional_put": "etag"}


def _delta(place: Place, key: str) -> Any:
    from deltalake import DeltaTable

    return DeltaTable(_DELTA, storage_options=_delta_options(place, key))


def _delta_creates(place: Place, key: str) -> None:
    from deltalake import DeltaTable

    DeltaTable.create(_DELTA, _batch([]).schema, storage_options=_delta_options(place, key))


def _delta_connects(place: Place, key: str) -> Commit:
    from deltalake import write_deltalake

    table = _delta(place, key)

    def commit(records: list[bytes]) -> None:
        try:
            write_deltalake(table, _batch(records), mode="append")
        except Exception:
            table.update_incremental()
            raise

    return commit


def _delta_reads(place: Place, key: str) -> list[bytes]:
    found: list[bytes] = _delta(place, key).to_pyarrow_table()["record"].to_pylist()
    return found


# PyIceberg --------------------------------------------------------------------------------------------------------


def _catalog(place: Place, key: str) -> Any:
    os.environ["PYICEBERG_MAX_WORKERS"] = "64"
    import pyarrow
    from pyiceberg.catalog.sql import SqlCatalog

    pyarrow.set_io_thread_count(64)
    return SqlCatalog(
        "race",
        uri=f"sqlite:///{Path(place.folder, 'catalog.db')}?timeout=60",
        warehouse="s3://bench/iceberg",
        **{
            "s3.endpoint": place.endpoint, "s3.region": "us-east-1", "s3.access-key-id": key,
            "s3.secret-access-key": SECRET,
        },
    )  # fmt: skip


def _iceberg(place: Place, key: str) -> Any:
    return _catalog(place, key).load_table("of.records")


def _iceberg_creates(place: Place, key: str) -> None:
    catalog = _catalog(place, key)
    catalog.create_namespace("of")
    catalog.create_table("of.records", _batch([]).schema)


def _iceberg_connects(place: Place, key: str) -> Commit:
    table = _iceberg(place, key)

    def commit(records: list[bytes]) -> None:
        try:
            table.append(_batch(records))
        except Exception:
            table.refresh()
            raise

    return commit


def _iceberg_reads(place: Place, key: str) -> list[bytes]:
    found: list[bytes] = _iceberg(place, key).scan().to_arrow()["record"].to_pylist()
    return found


# Lance ------------------------------------------------------------------------------------------------------------

_LANCE = "s3://bench/lance"


def _lance(place: Place, key: str) -> Any:
    import lance

    # A hundred writers with caches of the default size would take 8 GB.
    session = lance.Session(metadata_cache_size_bytes=4 << 20, index_cache_size_bytes=1 << 20)
    return lance.dataset(_LANCE, storage_options=_options(place, key), session=session)


def _lance_creates(place: Place, key: str) -> None:
    import lance

    lance.write_dataset(_batch([]), _LANCE, storage_options=_options(place, key))


def _lance_connects(place: Place, key: str) -> Commit:
    import lance

    dataset = _lance(place, key)

    def commit(records: list[bytes]) -> None:
        nonlocal dataset
        try:
            dataset = lance.write_dataset(_batch(records), dataset, mode="append")
        except Exception:
            dataset = _lance(place, key)
            raise

    return commit


def _lance_reads(place: Place, key: str) -> list[bytes]:
    found: list[bytes] = _lance(place, key).to_table()["record"].to_pylist()
    return found


PEERS = {
    "delta-rs": Peer(
        ("deltalake",), "deltalake", r"_delta_log/\d+\.json$", _delta_creates, _delta_connects,
        lambda place, key: int(_delta(place, key).count()), _delta_reads,
    ),
    "PyIceberg": Peer(
        ("pyiceberg.catalog.sql", "pyiceberg.io.pyarrow"), "pyiceberg", r"\.metadata\.json$",
        _iceberg_creates, _iceberg_connects,
        lambda place, key: int(_iceberg(place, key).scan().count()), _iceberg_reads,
    ),
    "Lance": Peer(
        ("lance",), "pylance", r"_versions/.*\.manifest$", _lance_creates, _lance_connects,
        lambda place, key: int(_lance(place, key).count_rows()), _lance_reads,
    ),
}  # fmt: skip
