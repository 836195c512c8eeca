"""Modules import only from their own layer and lower ones, and pure packages do no I/O.

Every ``import`` statement in the source counts, including those inside functions and under ``TYPE_CHECKING``: a type
from a higher layer in a signature is also a dependency on that layer.
"""

from __future__ import annotations

import ast
import graphlib
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from .parsed import Module, modules, parsed

LAYERS = {
    f"asyncrec.{name}": layer
    for layer, names in enumerate(
        (
            "_arguments _lazy _numpy _path_log errors _native native",
            "_concurrency _framing example plugins",
            "storage pages",
            "_records",
            "_shards",
            "_sampling",
            "_datasets datasets stats tools integrations blocking",
            "compat cli testing",
        )
    )
    for name in names.split()
}
# The package asyncrec itself resolves its names on first use, from any layer, so only the top layer may import it.
LAYERS["asyncrec"] = 7

# Within a package, each subpackage or module imports only from those listed before it, so there are no cycles.
ROOMS = {
    "asyncrec._concurrency": (
        "forks", "clock", "deadline", "ending", "processors", "tasks", "map", "read_ahead", "batches", "lru_cache",
        "turns",
    ),
    "asyncrec._framing": (
        "crc", "encoding", "borders", "damage", "compression", "search", "frames", "measuring", "salvage",
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
        "parameters", "state_values", "stream_state", "damage", "shard_versions", "record_set", "interleave",
        "interleave_sampler", "epochs", "random_access", "balanced_sampler",
    ),
}  # fmt: skip

PURE = (
    "asyncrec._arguments", "asyncrec._lazy", "asyncrec._numpy", "asyncrec.errors", "asyncrec._native",
    "asyncrec._framing", "asyncrec.example", "asyncrec._records.position", "asyncrec._sampling.parameters",
    "asyncrec._sampling.random_access.frame_extractor", "asyncrec._sampling.damage",
    "asyncrec._sampling.epochs.worker_batches", "asyncrec._sampling.interleave.order",
    "asyncrec._sampling.epochs.epoch_order", "asyncrec._sampling.interleave.provenance",
    "asyncrec._sampling.epochs.permutation", "asyncrec._sampling.interleave_sampler.class_queues",
    "asyncrec._sampling.random_access.record_numbers", "asyncrec._sampling.interleave.shuffle_buffer",
    "asyncrec._sampling.state_values", "asyncrec._sampling.stream_state", "asyncrec._sampling.interleave.rounds",
    "asyncrec._sampling.record_set",
)  # fmt: skip

# Event loops, threads, files and sockets. `io` and `os` are included: pure code accepts and returns bytes.
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
    """Return the layer of the longest entry that contains the module; raise LookupError if only the root entry does."""
    entry = max((name for name in LAYERS if within(module, name)), key=len)
    if entry == "asyncrec" != module:
        raise LookupError(f"{module} has no layer: add it to LAYERS in {Path(__file__).name} and to the design")
    return LAYERS[entry]


def imports_of(
    source: Module, module: str, known: frozenset[str], *, is_package: bool = False
) -> Iterator[tuple[int, str]]:
    """Yield each imported module with its line; ``from a import b`` counts as ``a.b`` if that is a module of ours."""
    for node in source.nodes:
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


def upward(source: Module, module: str, known: frozenset[str], *, is_package: bool = False) -> list[str]:
    """Describe each import from a higher layer in a sentence."""
    own = layer_of(module)
    return [
        f"{module}:{line} (layer {own}) imports {name} (layer {layer_of(name)})"
        for line, name in imports_of(source, module, known, is_package=is_package)
        if within(name, "asyncrec") and layer_of(name) > own
    ]


def impure(source: Module, module: str, known: frozenset[str], *, is_package: bool = False) -> list[str]:
    """Describe each import that pure code must not have: event loops, threads, files, sockets, impure modules."""
    found = []
    for line, name in imports_of(source, module, known, is_package=is_package):
        ours = within(name, "asyncrec")
        if name.split(".")[0] in IMPURE or (ours and not any(within(name, pure) for pure in PURE)):
            found.append(f"{module}:{line} is pure, and imports {name}")
    for node in source.nodes:
        if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncWith | ast.AsyncFor):
            found.append(f"{module}:{node.lineno} is pure, and async")
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in {"open", "print", "input"}
        ):
            found.append(f"{module}:{node.lineno} is pure, and calls {node.func.id}()")
    return found


def module_name(file: str) -> str:
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@cache
def sources() -> dict[str, Module]:
    library = [module for module in modules() if module.name.startswith("asyncrec/")]
    return {module_name(module.name): module for module in library}


def faults(check: Callable[..., list[str]], names: Iterable[str]) -> list[str]:
    known = frozenset(sources())
    return [
        fault
        for name in names
        for fault in check(sources()[name], name, known, is_package=sources()[name].name.endswith("__init__.py"))
    ]


def test_modules_import_only_from_lower_or_own_layers() -> None:
    assert faults(upward, sources().keys() - {"asyncrec"}) == []


def test_modules_have_no_circular_imports() -> None:
    # A package's __init__ imports the package's modules, which import the package for its names; that is no cycle.
    modules = {name: module for name, module in sources().items() if not module.name.endswith("__init__.py")}
    imports = {
        name: {taken for _, taken in imports_of(module, name, frozenset(sources()))} & modules.keys()
        for name, module in modules.items()
    }
    graphlib.TopologicalSorter(imports).prepare()  # raises CycleError, which shows the cycle


def test_pure_code_does_no_io() -> None:
    assert {pure for pure in PURE if not any(within(name, pure) for name in sources())} == set()
    assert faults(impure, [name for name in sources() if any(within(name, pure) for pure in PURE)]) == []


@pytest.mark.parametrize("package", ROOMS)
def test_subpackage_imports_only_from_earlier_subpackages(package: str) -> None:
    rooms = [f"{package}.{room}" for room in ROOMS[package]]

    def place(module: str) -> int:
        return next(number for number, room in enumerate(rooms) if within(module, room))

    inner = [module for module in sources() if within(module, package) and module != package]
    later = [
        f"{module}:{line} imports {name}"
        for module in inner
        for line, name in imports_of(sources()[module], module, frozenset(sources()))
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
def test_upward_import_is_detected_in_any_form(module: str, source: str) -> None:
    known = frozenset(sources()) | {"asyncrec._records.reading.reader"}
    assert len(upward(parsed(source), module, known)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "import anyio", "from anyio import to_thread", "def late():\n    from pathlib import Path",
        "from asyncrec._concurrency.tasks import anything", "from asyncrec.storage._base import Buffer",
        "async def f(): ...", "open('x')",
    ],
)  # fmt: skip
def test_io_in_pure_code_is_detected_in_any_form(source: str) -> None:
    assert len(impure(parsed(source), "asyncrec._framing.frames", frozenset(sources()))) == 1


def test_layer_checks_accept_allowed_imports() -> None:
    source = "import struct\nfrom asyncrec.errors import FormatError\nfrom .crc import crc32c\nfrom . import crc"
    known = frozenset(sources())
    assert upward(parsed(source), "asyncrec._framing.frames", known) == []
    assert impure(parsed(source), "asyncrec._framing.frames", known) == []
    face = parsed("from . import base\nfrom .base import Buffer")
    assert upward(face, "asyncrec.storage", known, is_package=True) == []


def test_module_without_layer_is_reported() -> None:
    with pytest.raises(LookupError, match=r"asyncrec\.novelty\.thing has no layer"):
        layer_of("asyncrec.novelty.thing")


def test_importing_asyncrec_loads_no_cloud_or_framework_client(
    record_property: Callable[[str, object], None],
) -> None:
    """Resolving every public name loads none either.

    Import times are reported but not asserted, because they depend on the machine.
    """
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
