"""Reading 1 GiB with ``on_corrupt="skip"``, undamaged or with a damaged record in every MiB."""

from __future__ import annotations

from pathlib import Path

import records
from harness import MIB, Case, Target
from records import Main, expect, timed


def skip_batches(case: Case) -> Main:
    import asyncrec

    async def main(path: Path) -> None:
        count = 0
        async with asyncrec.open_reader(str(path), on_corrupt="skip") as reader:
            async for batch in reader.batches():
                count += len(batch)
            count += reader.stats().lost_ranges
        expect(count, case)

    return main


def prepare_damaged(case: Case, path: Path) -> None:
    """Change a byte in the data of one record per MiB, and in every other one of these also a byte in its header."""
    records.prepare(case, path)
    frame = case.size + 16
    with open(path, "r+b") as file:
        for number in range(case.count // 4, case.count, max(MIB // frame, 4)):
            file.seek(number * frame + 20)
            byte = file.read(1)
            file.seek(number * frame + 20)
            file.write(bytes([byte[0] ^ 1]))
            if number // 4 % 2:
                file.seek(number * frame)
                file.write(b"\xff" * 12)


_SIZES = [("8M x 128 B", 8_000_000, 128), ("260k x 4 KiB", 260_000, 4096), ("1k x 1 MiB", 1_024, MIB)]

CASES = [
    *(
        Case(
            name=f"read {name}, on_corrupt",
            count=count,
            size=size,
            contenders={"asyncrec raise": timed(records.read_batches), "asyncrec skip": timed(skip_batches)},
            prepare=records.prepare,
        )
        for name, count, size in _SIZES
    ),
    Case(
        name="read 260k x 4 KiB, a thousand of them damaged",
        count=260_000,
        size=4096,
        contenders={"asyncrec skip": timed(skip_batches)},
        prepare=prepare_damaged,
        note="as many records come out as are whole, as many ranges are lost as records are not",
    ),
]

TARGETS = [Target(f"read {name}, on_corrupt", "asyncrec skip", "asyncrec raise", 0.8) for name, _, _ in _SIZES]
