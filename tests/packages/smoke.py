"""Check what has to work in an installed asyncrec; ``make dist`` runs it in environments with the distributions only.

It prints a JSON object on one line: the Python, the version and location of asyncrec, and whether frames are made in C.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import tempfile
from importlib.metadata import entry_points, version
from pathlib import Path

import anyio

import asyncrec
from asyncrec import blocking, native, tools


async def crawl(folder: Path) -> int:
    async with asyncrec.open_sharded_writer(folder / "pages", max_shard_records=40) as writer:
        for number in range(100):
            await writer.write(asyncrec.encode_example({"n": number, "body": b"x" * number}), key=str(number))
    count = 0
    async with asyncrec.open_dataset(folder / "pages") as pages:
        for number in range(len(pages)):
            count += asyncrec.decode_example(await pages.get(number))["n"] >= 0
    verified = await tools.verify(folder / "pages")
    assert verified.ok, verified.to_json()
    return count


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for backend in ("asyncio", "trio") if "--trio" in sys.argv else ("asyncio",):
            assert anyio.run(crawl, folder / backend, backend=backend) == 100
        blocking.write_records(folder / "one.tfrecord.gz", [b"a", b"b"], compression="GZIP")
        assert list(blocking.read_records(folder / "one.tfrecord.gz")) == [b"a", b"b"]
        doctor = subprocess.run(
            [Path(sys.executable).parent / "asyncrec", "doctor", str(folder)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert doctor.returncode == 0, doctor.stdout + doctor.stderr
    print(
        json.dumps(
            {
                "python": platform.python_version(),
                "asyncrec": version("asyncrec"),
                "from": str(Path(asyncrec.__file__).parent),
                "native": bool(native.FUNCTIONS),
                "plugins": sorted(each.name for each in entry_points(group="asyncrec")),
            }
        )
    )


main()
