"""Libraries that stream training data, with the same records and store, if they are installed: rows of `epoch`.

    .venv-bench/bin/pip install s3torchconnector mosaicml-streaming datasets s3fs

s3torchconnector reads the TFRecord shards as whole objects, without splitting them into records. WebDataset reads the
same records from tar files with ``curl``, as documented for HTTP; curl's processor time is not counted. MosaicML
Streaming reads them from its own shards of 16 MiB, with boto3, into a local folder, here on a tmpfs. Hugging Face
datasets streams them with s3fs from uncompressed Parquet files with the same number of records each. Each runs in one
process, with its defaults; by default, none of them verifies a checksum for each record.
"""

from __future__ import annotations

import asyncio
import importlib.util
import io
import itertools
import os
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from epoch_readers import BATCH, EPOCH, Meter, Reader, Shards
from s3 import CREDENTIALS
from wire import endpoint

# The module of each library, and the suffix of the folder with the records in its own format, or "".
PEERS = {
    "s3torchconnector": ("s3torchconnector", ""),
    "WebDataset": ("webdataset", "tar"),
    "MosaicML Streaming": ("streaming", "mds"),
    "Hugging Face datasets": ("datasets", "parquet"),
}


def installed() -> list[str]:
    return [name for name, (module, _) in PEERS.items() if importlib.util.find_spec(module)]


def write_for(peers: Iterable[str], folder: Path, shards: Shards) -> None:
    """Write the data set's records in the formats that the peers read."""
    for kind in {PEERS[name][1] for name in peers} - {""}:
        place = folder / f"{shards.folder}.{kind}"
        place.mkdir()
        {"tar": _write_tar, "mds": _write_mds, "parquet": _write_parquet}[kind](place, folder, shards)


def _records(folder: Path, key: str) -> list[bytes]:
    from asyncrec.blocking import read_records

    return read_records(folder / key)


def _write_tar(place: Path, folder: Path, shards: Shards) -> None:
    for number, key in enumerate(shards.keys):
        with tarfile.open(place / f"{number:06}.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
            for index, record in enumerate(_records(folder, key)):
                member = tarfile.TarInfo(f"{number:06}-{index:06}.bin")
                member.size = len(record)
                tar.addfile(member, io.BytesIO(record))


def _write_mds(place: Path, folder: Path, shards: Shards) -> None:
    from streaming import MDSWriter

    with MDSWriter(out=str(place), columns={"record": "bytes"}, size_limit=16 << 20) as writer:
        for key in shards.keys:
            for record in _records(folder, key):
                writer.write({"record": record})


def _write_parquet(place: Path, folder: Path, shards: Shards) -> None:
    import pyarrow
    import pyarrow.parquet

    for number, key in enumerate(shards.keys):
        table = pyarrow.table({"record": pyarrow.array(_records(folder, key), pyarrow.binary())})
        pyarrow.parquet.write_table(table, place / f"{number:06}.parquet", compression="NONE", use_dictionary=False)


def _peer(read: Callable[[Shards], Iterator[list[bytes]]], *, whole: bool = False) -> Reader:
    async def run(shards: Shards, meter: Meter) -> None:
        def measure() -> None:
            os.environ |= {name.upper(): value for name, value in CREDENTIALS.items()}
            os.environ |= {"S3_ENDPOINT_URL": endpoint(), "AWS_REGION": "us-east-1"}
            meter.start()
            for records in read(shards):
                meter.took(0 if whole else len(records), sum(map(len, records)))
            meter.stop()

        await asyncio.to_thread(measure)

    return run


def _s3torchconnector(shards: Shards) -> Iterator[list[bytes]]:
    from s3torchconnector import S3ClientConfig, S3IterableDataset

    dataset: Any = S3IterableDataset.from_objects(
        [f"s3://bench/{key}" for key in shards.keys], region="us-east-1", endpoint=endpoint(),
        s3client_config=S3ClientConfig(force_path_style=True),
    )  # fmt: skip
    for reader in dataset:
        yield [reader.read()]


def _webdataset(shards: Shards) -> Iterator[list[bytes]]:
    import webdataset

    urls = [
        f"pipe:curl -s -f {endpoint()}/bench/{shards.folder}.tar/{number:06}.tar" for number in range(len(shards.keys))
    ]
    yield from _batches(sample["bin"] for sample in webdataset.WebDataset(urls, shardshuffle=False))


def _mosaicml(shards: Shards) -> Iterator[list[bytes]]:
    from streaming import StreamingDataset

    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as place:
        dataset = StreamingDataset(
            remote=f"s3://bench/{shards.folder}.mds", local=place, shuffle=True, shuffle_seed=1, batch_size=BATCH
        )
        yield from _batches(sample["record"] for sample in dataset)


def _batches(records: Iterable[bytes]) -> Iterator[list[bytes]]:
    waiting = iter(records)
    while batch := list(itertools.islice(waiting, BATCH)):
        yield batch


def _huggingface(shards: Shards) -> Iterator[list[bytes]]:
    import datasets

    dataset: Any = datasets.load_dataset(
        "parquet",
        data_files=[f"s3://bench/{shards.folder}.parquet/{number:06}.parquet" for number in range(len(shards.keys))],
        split="train",
        streaming=True,
        storage_options={
            "key": CREDENTIALS["aws_access_key_id"], "secret": CREDENTIALS["aws_secret_access_key"],
            "endpoint_url": endpoint(), "client_kwargs": {"region_name": "us-east-1"},
        },
    )  # fmt: skip
    for batch in dataset.iter(batch_size=BATCH):
        yield batch["record"]


READERS: dict[str, tuple[Reader, str]] = {
    "s3torchconnector": (_peer(_s3torchconnector, whole=True), EPOCH),
    "WebDataset": (_peer(_webdataset), EPOCH),
    "MosaicML Streaming": (_peer(_mosaicml), EPOCH),
    "Hugging Face datasets": (_peer(_huggingface), EPOCH),
}
