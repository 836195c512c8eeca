"""The layers of the design hold: a module imports from lower layers and from its own, and pure packages do no I/O.

What counts as an import is every ``import`` statement in the source, those inside functions and those under
``TYPE_CHECKING`` too: a type from a higher layer in a signature is a dependency on it.
"""

from __future__ import annotations

import ast
import graphlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "asyncrec"

LAYERS = {
    "asyncrec._arguments": 0,
    "asyncrec._lazy": 0,
    "asyncrec._numpy": 0,
    "asyncrec._path_log": 0,
    "asyncrec.errors": 0,
    "asyncrec._native": 0,
    "asyncrec.native": 0,
    "asyncrec._concurrency": 1,
    "asyncrec._framing": 1,
    "asyncrec.example": 1,
    "asyncrec.pages": 2,
    "asyncrec.plugins": 1,
    "asyncrec.storage": 2,
    "asyncrec._records": 3,
    "asyncrec._shards": 4,
    "asyncrec._sampling": 5,
    "asyncrec._datasets": 6,
    "asyncrec.datasets": 6,
    "asyncrec.stats": 6,
    "asyncrec.tools": 6,
    "asyncrec.integrations": 6,
    "asyncrec.blocking": 6,
    "asyncrec.compat": 7,
    "asyncrec.cli": 7,
    "asyncrec.testing": 7,
    # The face of it all resolves its names on first use and may take them from anywhere: only the top may lean on it.
    "asyncrec": 7,
}

# Within a package: a room imports from those before it, so there is no circle.
ROOMS = {
    "asyncrec._concurrency": (
        "forks",
        "clock",
        "deadline",
        "ending",
        "tasks",
        "map",
        "read_ahead",
        "batches",
        "lru_cache",
        "turns",
    ),
    "asyncrec._framing": (
        "crc",
        "encoding",
        "borders",
        "damage",
        "compression",
        "search",
        "frames",
        "measuring",
        "salvage",
    ),
    "asyncrec._records": (
        "dataset_names",
        "record_size",
        "position",
        "index_columns",
        "index",
        "torn_end",
        "reading",
        "writing",
    ),
    "asyncrec._shards": ("manifest", "journal", "commit", "ownership", "spool", "recovery", "writing"),
    "asyncrec._datasets": ("progress", "description", "sidecars", "shuffling", "from_generator", "from_csv", "reading"),
    "asyncrec._sampling": (
        "parameters",
        "state_values",
        "stream_state",
        "damage",
        "shard_versions",
        "interleave",
        "interleave_sampler",
        "epochs",
        "random_access",
        "balanced_sampler",
    ),
}

PURE = (
    "asyncrec._arguments",
    "asyncrec._lazy",
    "asyncrec._numpy",
    "asyncrec.errors",
    "asyncrec._native",
    "asyncrec._framing",
    "asyncrec.example",
    "asyncrec._records.position",
    "asyncrec._sampling.parameters",
    "asyncrec._sampling.random_access.frame_extractor",
    "asyncrec._sampling.damage",
    "asyncrec._sampling.epochs.worker_batches",
    "asyncrec._sampling.interleave.order",
    "asyncrec._sampling.epochs.epoch_order",
    "asyncrec._sampling.interleave.provenance",
    "asyncrec._sampling.epochs.permutation",
    "asyncrec._sampling.interleave_sampler.class_queues",
    "asyncrec._sampling.random_access.record_numbers",
    "asyncrec._sampling.interleave.shuffle_buffer",
    "asyncrec._sampling.state_values",
    "asyncrec._sampling.stream_state",
    "asyncrec._sampling.interleave.rounds",
)

# Event loops, threads, files and sockets. `io` and `os` are among them: pure code takes bytes and gives bytes.
IMPURE = {
    "aiofiles", "aiohttp", "anyio", "asyncio", "concurrent", "fcntl", "http", "httpx", "io", "logging", "mmap",
    "multiprocessing", "os", "pathlib", "select", "selectors", "shutil", "signal", "sniffio", "socket", "ssl",
    "subprocess", "tempfile", "threading", "trio", "urllib",
}  # fmt: skip

CLIENTS = ("aiobotocore", "aiofiles", "aiohttp", "boto3", "botocore", "gcloud", "google.auth", "google.cloud", "httpx",
           "keras", "pandas", "pyarrow", "rich", "tensorflow", "torch", "typer")  # fmt: skip


def within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def layer_of(module: str) -> int:
    """By the longest entry that holds the module; one that no entry but the root holds has no layer yet."""
    entry = max((name for name in LAYERS if within(module, name)), key=len)
    if entry == "asyncrec" != module:
        raise LookupError(f"{module} has no layer: add it to LAYERS in {Path(__file__).name} and to the design")
    return LAYERS[entry]


def imports_of(
    source: str, module: str, known: frozenset[str], *, is_package: bool = False
) -> Iterator[tuple[int, str]]:
    """Each imported module with its line; ``from a import b`` is ``a.b`` where that is a module of ours."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".")
                parts = parts[: len(parts) - node.level + is_package]
                base = ".".join([*parts, base] if base else parts)
            for alias in node.names:
                name = f"{base}.{alias.name}"
                yield node.lineno, name if name in known else base


def upward(source: str, module: str, known: frozenset[str], *, is_package: bool = False) -> list[str]:
    """The imports that reach into a higher layer, as sentences."""
    own = layer_of(module)
    return [
        f"{module}:{line} (layer {own}) imports {name} (layer {layer_of(name)})"
        for line, name in imports_of(source, module, known, is_package=is_package)
        if within(name, "asyncrec") and layer_of(name) > own
    ]


def impure(source: str, module: str, known: frozenset[str], *, is_package: bool = False) -> list[str]:
    """What pure code must not touch: event loops, threads, files, sockets, and modules of ours that are not pure."""
    found = []
    for line, name in imports_of(source, module, known, is_package=is_package):
        ours = within(name, "asyncrec")
        if name.split(".")[0] in IMPURE or (ours and not any(within(name, pure) for pure in PURE)):
            found.append(f"{module}:{line} is pure, and imports {name}")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncWith | ast.AsyncFor):
            found.append(f"{module}:{node.lineno} is pure, and async")
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in {"open", "print", "input"}
        ):
            found.append(f"{module}:{node.lineno} is pure, and calls {node.func.id}()")
    return found


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SOURCES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}
KNOWN = frozenset(SOURCES)
INNER = [module for module in SOURCES if module != "asyncrec"]


@pytest.mark.parametrize("module", INNER)
def test_imports_only_from_lower_layers_and_its_own(module: str) -> None:
    path = SOURCES[module]
    assert upward(path.read_text("utf-8"), module, KNOWN, is_package=path.name == "__init__.py") == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    # A package's face hands names on, and imports what is in the package, which imports the face for its names.
    modules = {module: path for module, path in SOURCES.items() if path.name != "__init__.py"}
    imports = {
        module: {name for _, name in imports_of(path.read_text("utf-8"), module, KNOWN)} & modules.keys()
        for module, path in modules.items()
    }
    graphlib.TopologicalSorter(imports).prepare()  # raises CycleError, which names the circle


@pytest.mark.parametrize("module", [name for name in INNER if any(within(name, pure) for pure in PURE)])
def test_pure_code_does_no_io(module: str) -> None:
    path = SOURCES[module]
    assert impure(path.read_text("utf-8"), module, KNOWN, is_package=path.name == "__init__.py") == []


@pytest.mark.parametrize("package", ROOMS)
def test_a_room_imports_only_from_the_rooms_before_it(package: str) -> None:
    rooms = [f"{package}.{room}" for room in ROOMS[package]]

    def place(module: str) -> int:
        return next(number for number, room in enumerate(rooms) if within(module, room))

    inner = [module for module in SOURCES if within(module, package) and module != package]
    later = [
        f"{module}:{line} imports {name}"
        for module in inner
        for line, name in imports_of(SOURCES[module].read_text("utf-8"), module, KNOWN)
        if within(name, package) and name != package and place(name) > place(module)
    ]
    assert later == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("asyncrec._framing.frames", "import asyncrec.storage._base"),
        ("asyncrec._framing.frames", "from asyncrec.storage._base import Buffer"),
        ("asyncrec.storage._local.storage", "from asyncrec._records import reader"),
        ("asyncrec.storage._local.storage", "from ..._records.reading import reader"),
        ("asyncrec.storage._local.storage", "from ... import _records"),
        ("asyncrec.storage._local.storage", "def late():\n    import asyncrec.cli"),
        (
            "asyncrec.storage._local.storage",
            "if TYPE_CHECKING:\n    from asyncrec._shards.writing.writer import ShardedWriter",
        ),
        ("asyncrec._records.reading.reader", "import asyncrec"),
        ("asyncrec._records.reading.reader", "from asyncrec import open_sharded_writer"),
    ],
)
def test_an_upward_import_is_found_in_whatever_form(module: str, source: str) -> None:
    assert len(upward(source, module, KNOWN | {"asyncrec._records.reading.reader"})) == 1


@pytest.mark.parametrize(
    "source",
    [
        "import anyio",
        "from anyio import to_thread",
        "def late():\n    from pathlib import Path",
        "from asyncrec._concurrency.tasks import anything",
        "from asyncrec.storage._base import Buffer",
        "async def f(): ...",
        "open('x')",
    ],
)
def test_io_in_pure_code_is_found_in_whatever_form(source: str) -> None:
    assert len(impure(source, "asyncrec._framing.frames", KNOWN)) == 1


def test_what_is_allowed_is_not_complained_of() -> None:
    source = "import struct\nfrom asyncrec.errors import FormatError\nfrom .crc import crc32c\nfrom . import crc"
    assert upward(source, "asyncrec._framing.frames", KNOWN) == []
    assert impure(source, "asyncrec._framing.frames", KNOWN) == []
    assert upward("from . import base\nfrom .base import Buffer", "asyncrec.storage", KNOWN, is_package=True) == []


def test_a_module_without_a_layer_is_an_error() -> None:
    with pytest.raises(LookupError, match=r"asyncrec\.novelty\.thing has no layer"):
        layer_of("asyncrec.novelty.thing")


def test_importing_asyncrec_takes_no_client_of_a_cloud_or_framework(
    record_property: Callable[[str, object], None],
) -> None:
    """Nor does resolving every public name. The times are reported, not asserted: they are the machine's."""
    program = """
import sys, time
began = time.perf_counter()
import asyncrec
imported = time.perf_counter()
for name in asyncrec.__all__:
    getattr(asyncrec, name)
print(imported - began, time.perf_counter() - began, *sys.modules)
"""
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    imported, resolved, *modules = done.stdout.split()
    record_property("import_seconds", float(imported))
    record_property("import_and_resolve_seconds", float(resolved))
    print(f"import asyncrec: {float(imported):.3f} s; with every public name: {float(resolved):.3f} s")
    assert "asyncrec" in modules
    assert [name for name in modules if any(within(name, client) for client in CLIENTS)] == []
