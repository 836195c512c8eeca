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
    near: tuple[str, ...] = ()  # its own tests: those that are asked before all others, and collected at first


_PROMISES = 3.0


def _plugins(*names: str) -> tuple[str, ...]:
    return tuple(f"plugins/asyncrec-{name}/tests/test_*.py" for name in names)


# Modules move: everything here is a glob, and one that finds nothing is an error.
GROUPS = (
    Group("shards", ("asyncrec/_shards/**/*.py",), 110, near=("tests/shards/test_*.py",)),
    Group("records", ("asyncrec/_records/**/*.py",), 60, near=("tests/records/test_*.py",)),
    Group(
        "datasets",
        ("asyncrec/_datasets/**/*.py",),
        30,
        {"writer.py": _PROMISES, "reader.py": _PROMISES},
        ("tests/datasets/test_*.py",),
    ),
    Group(
        "tools",
        ("asyncrec/tools/*.py",),
        40,
        dict.fromkeys(
            ("_copy.py", "_convert.py", "_recover.py", "_reshard.py", "_uploads.py", "_verify.py"), _PROMISES
        ),
        ("tests/tools/**/test_*.py", "tests/cli/test_*.py"),
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
                "shard_versions.py",
            ),
            _PROMISES,
        ),
        ("tests/sampling/test_*.py", "tests/concurrency/test_*.py", "tests/test_tasks.py"),
    ),
    Group(
        "storage",
        ("asyncrec/storage/_local/*.py", "asyncrec/storage/_retry.py"),
        20,
        near=("tests/storage/test_*.py",),
    ),
    Group("s3", ("plugins/asyncrec-s3/asyncrec_s3/*.py",), 25, near=_plugins("s3")),
    Group("azure", ("plugins/asyncrec-azure/asyncrec_azure/*.py",), 25, near=_plugins("azure")),
    Group(
        "http",
        ("plugins/asyncrec-http/asyncrec_http/*.py", "plugins/asyncrec-fsspec/asyncrec_fsspec/*.py"),
        15,
        near=_plugins("http", "fsspec"),
    ),
    Group(
        "crawlee",
        ("plugins/asyncrec-crawlee/asyncrec_crawlee/*.py", "plugins/asyncrec-scrapy/asyncrec_scrapy/*.py"),
        15,
        near=_plugins("crawlee", "scrapy"),
    ),
    Group("gcs", ("plugins/asyncrec-gcs/asyncrec_gcs/*.py",), 25, near=_plugins("gcs")),
)

# Asked at first: those that are near. What survives these is run against the rest, too.
TESTS = (
    "tests/shards/test_*.py",
    "tests/records/test_*.py",
    "tests/datasets/test_*.py",
    "tests/tools/**/test_*.py",
    "tests/cli/test_*.py",
    "tests/sampling/test_*.py",
    "tests/concurrency/test_*.py",
    "tests/storage/test_*.py",
    "tests/test_tasks.py",
    "tests/test_cancelled_reads.py",
    *_plugins("s3", "azure", "fsspec", "gcs", "http", "crawlee", "scrapy"),
)

# Not asked at first though near: it starts processes, whose lines nobody sees, and takes a minute.
LATER = ("tests/shards/test_torture.py",)


def modules_of(group: Group, root: Path) -> list[Path]:
    """Its modules, relative to ``root``."""
    found = sorted({path.relative_to(root) for each in group.globs for path in root.glob(each)})
    if not found:
        raise SystemExit(f"{group.globs}: no such module, see tests/mutants/targets.py")
    return found
