"""Compare asyncrec's C code with its Python counterpart on random cases: same results, same kinds of errors.

    PYTHONPATH=tests python -m native.fuzz --cases 1000000 --seed 7 --only cut_frames

`make sanitize` runs it with a module that was built with sanitizers for addresses and undefined behaviour
(``--module``). The first case that differs ends the run, and is reported with the seed that reproduces it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from random import Random
from typing import Any

__all__ = ["SUBJECTS", "fuzz"]

Subject = Callable[[Random], None]

SUBJECTS: dict[str, str] = {
    "crc32c": "crc32c",
    "crc64nvme": "crc64nvme",
    "encode_frames": "frames_encoded",
    "cut_frames": "frames_cut",
    "measure_frames": "frames_measured",
    "encode_example": "example_encoded",
    "example_columns": "example_columns",
    "parse_example": "example_parsed",
    "int64_values": "numbers_parsed",
    "encode_index": "index_encoded",
    "parse_index": "index_parsed",
    "sums_before": "index_asked",
    "fitting": "batches_measured",
    "lengths_of": "batches_measured",
    "join_digests": "digests_joined",
    "key_digest": "keys_digested",
    "key_digests": "keys_digested",
}
"""The functions in C, and what tries each: the name of a function in `cases`."""


def fuzz(name: str, count: int, seed: int) -> None:
    """Try a function ``count`` times. Raises AssertionError, with the seed of the case, if the results differ."""
    from . import cases  # imported late, because `main` selects the module before asyncrec is imported

    subject: Subject = getattr(cases, SUBJECTS[name])
    for number in range(seed, seed + count):
        try:
            subject(Random(number))
        except Exception as error:
            error.add_note(f"{name}: the case of --seed {number} --cases 1")
            raise


def use(path: str) -> None:
    """Make asyncrec use the C module in this file instead of the installed one."""
    spec = spec_from_file_location("asyncrec._native._c", path, loader=ExtensionFileLoader("asyncrec._native._c", path))
    assert spec is not None
    assert spec.loader is not None
    module: Any = module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[spec.name] = module


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=5_000, help="of each function")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=SUBJECTS, action="append")
    parser.add_argument("--module", help="another build of asyncrec/_native")
    arguments = parser.parse_args()
    if arguments.module:
        use(arguments.module)
    for name in arguments.only or SUBJECTS:
        fuzz(name, arguments.cases, arguments.seed)
        print(f"{name}: {arguments.cases:,} cases from seed {arguments.seed}, no difference")


if __name__ == "__main__":
    main()
