"""Which modules are changed, how much each package and module counts, and which tests are asked."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["GROUPS", "LATER", "TESTS", "Group", "modules_of"]


@dataclass(frozen=True)
class Group:
    """A row of the table: its modules, its share of a sample, and which of its modules count more than the others."""

    name: str
    globs: tuple[str, ...]
    share: int
    weights: dict[str, float] = field(default_factory=dict)  # the end of a path -> how much more often


_PROMISES = 3.0

# Modules move: everything here is a glob, and one that finds nothing is an error.
GROUPS = (
    Group("shards", ("asyncrec/_shards/**/*.py",), 110),
    Group("records", ("asyncrec/_records/**/*.py",), 60),
    Group("datasets", ("asyncrec/_datasets/**/*.py",), 30, {"writer.py": _PROMISES, "reader.py": _PROMISES}),
    Group(
        "tools",
        ("asyncrec/tools/*.py",),
        40,
        dict.fromkeys(
            ("_copy.py", "_convert.py", "_recover.py", "_reshard.py", "_uploads.py", "_verify.py"), _PROMISES
        ),
    ),
    Group(
        "sampling",
        ("asyncrec/_sampling/**/*.py", "asyncrec/_concurrency/*.py"),
        40,
        dict.fromkeys(
            (
                "stream_state.py",
                "stream.py",
                "passes.py",
                "shard_cursor.py",
                "sampler.py",
                "shuffled_stream.py",
                "shard_version.py",
            ),
            _PROMISES,
        ),
    ),
    Group(
        "storage",
        ("asyncrec/storage/_local/*.py", "asyncrec/storage/_retry.py"),
        20,
    ),
    Group("s3", ("plugins/asyncrec-s3/asyncrec_s3/*.py",), 25),
    Group("azure", ("plugins/asyncrec-azure/asyncrec_azure/*.py",), 25),
    Group("http", ("plugins/asyncrec-http/asyncrec_http/*.py", "plugins/asyncrec-fsspec/asyncrec_fsspec/*.py"), 15),
    Group("gcs", ("plugins/asyncrec-gcs/asyncrec_gcs/*.py",), 25),
)

# Asked at first: those that are near. What survives these is run against the rest, too.
TESTS = (
    "tests/shards/test_*.py",
    "tests/records/test_*.py",
    "tests/datasets/test_*.py",
    "tests/tools/**/test_*.py",
    "tests/sampling/test_*.py",
    "tests/concurrency/test_*.py",
    "tests/storage/test_*.py",
    "tests/test_tasks.py",
    "tests/test_cancelled_reads.py",
    "plugins/asyncrec-s3/tests/test_*.py",
    "plugins/asyncrec-azure/tests/test_*.py",
    "plugins/asyncrec-fsspec/tests/test_*.py",
    "plugins/asyncrec-gcs/tests/test_*.py",
    "plugins/asyncrec-http/tests/test_*.py",
)

# Not asked at first though near: it starts processes, whose lines nobody sees, and takes a minute.
LATER = ("tests/shards/test_torture.py",)


def modules_of(group: Group, root: Path) -> list[Path]:
    """Its modules, relative to ``root``."""
    found = sorted({path.relative_to(root) for each in group.globs for path in root.glob(each)})
    if not found:
        raise SystemExit(f"{group.globs}: no such module, see tests/mutants/targets.py")
    return found
