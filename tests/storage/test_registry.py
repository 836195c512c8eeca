"""How the backend for a path is found, including plugins, and the errors that name a faulty plugin."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from asyncrec.errors import (
    AmbiguousSchemeError,
    ArgumentError,
    ArgumentTypeError,
    PluginError,
    UnknownSchemeError,
    UnsupportedBackendError,
)
from asyncrec.plugins import hookimpl
from asyncrec.plugins._manager import DISABLE, Plugins
from asyncrec.storage import _registry as registry
from asyncrec.storage._backends import Backends
from asyncrec.storage._base import Storage
from asyncrec.storage._factory import StorageFactory
from asyncrec.storage._local.storage import LocalStorage
from asyncrec.storage._memory import MemoryStorage, open_memory
from asyncrec.storage._registry import located, located_folder, open_storage, register_writer_factory, schemes

pytestmark = pytest.mark.anyio


class Found:
    """The installed entry points, as a test defines them, with a registry that has not loaded any yet."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entries: list[Any] = []
        self.opened: list[tuple[str, dict[str, object]]] = []
        monkeypatch.setattr("importlib.metadata.entry_points", lambda group: self.entries)
        monkeypatch.setattr(registry, "_backends", Backends(Plugins()))
        monkeypatch.setattr(registry, "registered", {})
        monkeypatch.delenv(DISABLE, raising=False)

    def opener(self, label: str) -> Any:
        @asynccontextmanager
        async def open_it(url: str, **options: object) -> AsyncIterator[Storage]:
            self.opened.append((f"{label} {url}", options))
            yield MemoryStorage()

        return open_it

    def add(self, name: str, *schemes: str, hook: str = "asyncrec_storage_factories", **more: Any) -> None:
        factory = StorageFactory(name, schemes, self.opener(name), **more)
        module = ModuleType(name)
        setattr(module, hook, hookimpl(lambda: [factory]))
        self.entries.append(Entry(name, module))

    def add_broken(self, name: str, error: BaseException) -> None:
        self.entries.append(Entry(name, error))


class Entry:
    def __init__(self, name: str, loads: object) -> None:
        self.name, self.value, self.loads = name, f"the_{name}", loads

    def load(self) -> object:
        if isinstance(self.loads, BaseException):
            raise self.loads
        return self.loads


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Found:
    return Found(monkeypatch)


async def test_local_paths_need_no_plugin(found: Found, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found.add_broken("x", ImportError("never looked at"))
    for path, root, key in [
        ("x.rec", ".", "x.rec"),
        (tmp_path / "a" / "x.rec", str(tmp_path / "a"), "x.rec"),
        ("s3", ".", "s3"),
        (Path("s3:x") / "y", "./s3:x", "y"),
        (Path("file:x") / "y", "./file:x", "y"),
    ]:
        async with located(path) as (storage, found_key):
            assert isinstance(storage, LocalStorage)
            assert (storage.root, found_key) == (root, key)
    assert not registry._backends.loaded


@pytest.mark.parametrize("path", ["run:1.rec", "a:b", "foo:bar.rec", "folder:x/y"])
async def test_path_with_unregistered_prefix_is_local(
    found: Found, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.chdir(tmp_path)
    async with located(path) as (storage, key):
        await storage.put(key, b"local")
    assert (tmp_path / path).read_bytes() == b"local"


async def test_file_urls_are_local_and_decoded(found: Found, tmp_path: Path) -> None:
    async with located(f"file://{tmp_path}/a%20b/c%25") as (storage, key):
        await storage.put(key, b"x")
    assert (tmp_path / "a b" / "c%").read_bytes() == b"x"
    async with open_storage(f"file://{tmp_path}/a%20b") as storage:
        assert await storage.get("c%") == b"x"
    async with open_storage(tmp_path / "a b", chunk_size=100) as storage:
        assert await storage.get("c%") == b"x"


async def test_plugin_found_by_entry_point_gets_root_and_options(found: Found) -> None:
    found.add("cloud", "cl", "cl2")
    async with located("cl://bucket/a/b", storage_options={"region": "x"}) as (_, key):
        assert key == "a/b"
    async with open_storage("cl2://bucket/a", region="y"):
        pass
    assert found.opened == [("cloud cl://bucket", {"region": "x"}), ("cloud cl2://bucket/a", {"region": "y"})]


async def test_open_storage_is_used_without_closing(found: Found) -> None:
    memory = MemoryStorage()
    async with located("a/b", storage=memory) as (storage, key):
        assert (storage, key) == (memory, "a/b")
    with pytest.raises(TypeError, match="storage_options"):
        async with located("a/b", storage=memory, storage_options={}):
            pass


async def test_misspelt_option_raises_type_error(found: Found) -> None:
    with pytest.raises(TypeError, match="chunksize"):
        async with open_storage("memory://x", chunksize=3):
            pass


async def test_body_error_propagates_unchanged(found: Found) -> None:
    with pytest.raises(KeyError, match="mine"):
        async with located("memory://x/y"):
            raise KeyError("mine")


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("s3://bucket/x", "pip install asyncrec-s3"),
        ("gs://bucket/x", "pip install asyncrec-gcs"),
        ("az://bucket/x", "pip install asyncrec-azure"),
        ("https://host/x", "pip install asyncrec-http"),
        ("hf://datasets/x", "pip install asyncrec-fsspec"),
        ("file+aiofiles:///x", "pip install asyncrec-aiofiles"),
        ("azure://bucket/x", "check the spelling; no plugin for this scheme is known"),
        ("what://bucket/x", "install the plugin that provides it"),
    ],
)
async def test_unknown_scheme_error_names_remedy_and_known_schemes(found: Found, url: str, says: str) -> None:
    with pytest.raises(UnknownSchemeError, match=says) as caught:
        async with located(url):
            pass
    assert "The schemes are: file://, memory://" in str(caught.value)
    assert isinstance(caught.value, LookupError)


async def test_error_messages_hide_credentials(found: Found) -> None:
    with pytest.raises(UnknownSchemeError) as caught:
        async with located("what://user:CANARY@bucket/x"):
            pass
    assert "CANARY" not in str(caught.value)


async def test_broken_plugin_is_named_and_does_not_affect_others(
    found: Found, caplog: pytest.LogCaptureFixture
) -> None:
    broken = ImportError("no botocore")
    found.add_broken("s3", broken)
    found.add("cloud", "cl")
    async with open_storage("cl://x"):
        pass
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "s3" in caplog.text
    with pytest.raises(UnknownSchemeError, match="plugin 's3' could not be loaded: ImportError: no botocore") as caught:
        async with open_storage("s3://x"):
            pass
    assert caught.value.__cause__ is broken


async def test_misspelt_hook_raises_error_naming_plugin(found: Found) -> None:
    found.add("cloudy", "cl", hook="asyncrec_storage_factorys")
    found.add("other", "ot")
    with pytest.raises(UnknownSchemeError, match=r"plugin 'cloudy'.*asyncrec_storage_factorys") as caught:
        async with open_storage("cl://x"):
            pass
    assert isinstance(caught.value.__cause__, PluginError)
    async with open_storage("ot://x"):
        pass


async def test_failing_or_misbehaving_hook_is_named(found: Found) -> None:
    failing, strange = ModuleType("failing"), ModuleType("strange")

    def fail() -> list[StorageFactory]:
        raise RuntimeError("at once")

    failing.asyncrec_storage_factories = hookimpl(fail)  # type: ignore[attr-defined]  # as in a plugin
    strange.asyncrec_storage_factories = hookimpl(lambda: ["s3"])  # type: ignore[attr-defined]  # likewise
    found.entries += [Entry("failing", failing), Entry("strange", strange)]
    with pytest.raises(UnknownSchemeError, match=r"'failing'.*at once.*'strange'.*'s3'"):
        async with open_storage("cl://x"):
            pass


async def test_plugin_cannot_claim_local_paths_or_bare_scheme_string(found: Found, tmp_path: Path) -> None:
    found.add("files", "")
    bare = ModuleType("bare")
    factory = StorageFactory("bare", "cl", found.opener("bare"))
    bare.asyncrec_storage_factories = hookimpl(lambda: [factory])  # type: ignore[attr-defined]  # as plugins are made
    found.entries.append(Entry("bare", bare))
    with pytest.raises(UnknownSchemeError, match=r"'files' claims paths without a scheme.*'cl' as its schemes"):
        async with open_storage("cl://x"):
            pass
    async with located(tmp_path / "x") as (storage, _):
        assert isinstance(storage, LocalStorage)


@pytest.mark.parametrize("scheme", ["", "file", "memory"])
@pytest.mark.parametrize("name", ["local", "memory", "mine"])
async def test_built_in_schemes_cannot_be_claimed_by_plugins(
    found: Found, tmp_path: Path, scheme: str, name: str
) -> None:
    """This holds for any name of the entry point, including the names of asyncrec's own."""
    found.add(name, scheme, "cl")
    claimed = f"{scheme}://" if scheme else "paths without a scheme"
    with pytest.raises(UnknownSchemeError, match=f"the plugin '{name}' claims {claimed}, which are built in"):
        async with open_storage("cl://x"):
            pass
    for path, kind in ((tmp_path / "x", LocalStorage), (f"file://{tmp_path}/x", LocalStorage), ("memory://x/y", None)):
        async with located(path) as (storage, key):
            await storage.put(key, b"x")
            assert kind is None or isinstance(storage, kind)
    assert found.opened == []


async def test_built_in_schemes_load_no_plugins(found: Found, tmp_path: Path) -> None:
    found.add_broken("x", SystemExit("never looked at"))
    for path in ("memory://x", "MEMORY://x", f"file://{tmp_path}", f"FILE:{tmp_path}", tmp_path, "x.rec"):
        async with located(path):
            pass
    assert not registry._backends.loaded


class Boo(BaseException):
    """An exception of a kind that no code expects."""


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), Boo("boo")])
@pytest.mark.parametrize("hook", [False, True])
async def test_plugin_exiting_program_does_not_break_others(found: Found, error: BaseException, hook: bool) -> None:
    def fail() -> list[StorageFactory]:
        raise error

    ending = ModuleType("ending")
    ending.asyncrec_storage_factories = hookimpl(fail)  # type: ignore[attr-defined]  # as in a plugin
    found.add("before", "be")
    found.entries.append(Entry("ending", ending if hook else error))
    found.add("after", "af")
    for _ in range(2):
        for scheme in ("be", "af"):
            async with open_storage(f"{scheme}://x"):
                pass
        with pytest.raises(UnknownSchemeError, match=f"'ending' could not be loaded: {type(error).__name__}") as caught:
            async with open_storage("en://x"):
                pass
        assert caught.value.__cause__ is error


@pytest.mark.parametrize("scheme", [5, None, ["cl"], b"cl", "CL", "c", "c l", "cl://", "1cl", "clé"])
async def test_invalid_scheme_raises_error_naming_plugin(found: Found, scheme: Any) -> None:
    found.add("odd", "od", scheme)
    with pytest.raises(UnknownSchemeError, match=r"the plugin 'odd' returned the scheme .* lower-case"):
        async with open_storage("what://x"):
            pass
    with pytest.raises(UnknownSchemeError):  # a plugin's schemes are registered all or not at all
        async with open_storage("od://x"):
            pass


async def test_invalid_factory_name_raises_error_naming_plugin(found: Found) -> None:
    odd = ModuleType("odd")
    factory = StorageFactory(7, ("od",), found.opener("odd"))  # type: ignore[arg-type]  # deliberately wrong
    odd.asyncrec_storage_factories = hookimpl(lambda: [factory])  # type: ignore[attr-defined]  # as plugins are made
    found.entries.append(Entry("odd", odd))
    with pytest.raises(UnknownSchemeError, match="the plugin 'odd' returned a StorageFactory with the name 7"):
        async with open_storage("od://x"):
            pass


async def test_damaged_distribution_metadata_does_not_break_plugins(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(registry, "_backends", Backends(Plugins()))
    for name, points in (("damaged", "[other]\nno value\n"), ("whole", "[asyncrec]\nwhole = asyncrec_whole\n")):
        (tmp_path / f"{name}-1.dist-info").mkdir()
        (tmp_path / f"{name}-1.dist-info" / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        (tmp_path / f"{name}-1.dist-info" / "entry_points.txt").write_text(points)
    (tmp_path / "asyncrec_whole.py").write_text(
        "from asyncrec.storage import StorageFactory\n"
        "from asyncrec.plugins import hookimpl\n"
        "from asyncrec.storage._memory import open_memory\n"
        "@hookimpl\n"
        "def asyncrec_storage_factories():\n"
        "    return [StorageFactory('whole', ('whole',), lambda url: open_memory('memory://x'))]\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    async with open_storage("whole://x"):
        pass
    with pytest.raises(UnknownSchemeError, match="The plugin 'damaged' could not be loaded"):
        async with open_storage("what://x"):
            pass


async def test_unlisted_backend_option_is_rejected(found: Found) -> None:
    register_writer_factory("few", StorageFactory("few", (), open_memory))
    with pytest.raises(ArgumentTypeError, match=r"few:.*'colour'"):
        async with open_storage("few:x", colour="red"):
            pass


async def test_type_error_inside_backend_stays_unchanged(found: Found) -> None:
    def broken(url: str, **options: object) -> Any:
        return len(3)  # type: ignore[arg-type]  # the fault

    register_writer_factory("few", StorageFactory("few", (), broken))
    with pytest.raises(TypeError, match="has no len") as caught:
        async with open_storage("few:x", colour="red"):
            pass
    assert not isinstance(caught.value, ArgumentError)


async def test_drivers_of_one_scheme_are_selected_by_name(found: Found) -> None:
    found.add("one", "cl")
    found.add("two", "cl")
    with pytest.raises(AmbiguousSchemeError, match=r"one, two.*cl\+one://") as caught:
        async with open_storage("cl://x"):
            pass
    assert isinstance(caught.value, LookupError)
    async with located("cl+two://bucket/a"):
        pass
    assert found.opened == [("two cl://bucket", {})]


async def test_plugins_can_be_disabled_entirely_or_by_name(found: Found, monkeypatch: pytest.MonkeyPatch) -> None:
    found.add("one", "cl")
    found.add("two", "tw")
    monkeypatch.setenv(DISABLE, "two, three")
    async with open_storage("cl://x"):
        pass
    with pytest.raises(UnknownSchemeError, match=r"These plugins are disabled by ASYNCREC_DISABLE_PLUGINS: two"):
        async with open_storage("tw://x"):
            pass
    monkeypatch.setenv(DISABLE, "1")
    monkeypatch.setattr(registry, "_backends", Backends(Plugins()))
    with pytest.raises(UnknownSchemeError, match="disabled by ASYNCREC_DISABLE_PLUGINS: one, two"):
        async with open_storage("cl://x"):
            pass
    async with open_storage("memory://x"):
        pass


async def test_own_and_duplicate_entry_points_are_ignored(found: Found) -> None:
    found.add("cloud", "cl")
    found.entries *= 2
    found.entries.append(EntryPoint("local", "asyncrec.storage._local.storage", "asyncrec"))
    found.entries.append(EntryPoint("memory", "asyncrec.storage._memory", "asyncrec"))
    async with open_storage("cl://x"):
        pass
    async with open_storage("file:///tmp"):
        pass


async def test_installed_metadata_names_built_in_backends() -> None:
    found = entry_points(group="asyncrec")
    assert {"asyncrec.storage._local.storage", "asyncrec.storage._memory"} <= {entry.value for entry in found}


async def test_backend_of_other_event_loop_is_rejected_with_remedy(found: Found, anyio_backend_name: str) -> None:
    other = {"asyncio": "trio", "trio": "asyncio"}[anyio_backend_name]
    found.add("driver", "file+driver", backends=frozenset({other}))
    found.add("native", "file+native", backends=frozenset({anyio_backend_name}))
    with pytest.raises(UnsupportedBackendError, match=f"not on {anyio_backend_name}.* use file://") as caught:
        async with open_storage("file+driver:///x"):
            pass
    assert isinstance(caught.value, RuntimeError)
    async with open_storage("file+native:///x"):
        pass


async def test_plugin_scheme_without_slashes_is_rejected(found: Found) -> None:
    found.add("cloud", "cl")
    with pytest.raises(ValueError, match=r"write cl://.*or \./cl:x\.rec"):
        async with located("cl:x.rec"):
            pass


async def test_schemes_lists_openable_schemes(found: Found) -> None:
    found.add("stores", "zz", "aa")
    found.entries.append(Entry("broken", ImportError("not here")))
    register_writer_factory("mine", StorageFactory("mine", ["mine"], found.opener("mine")))
    assert schemes() == ["aa", "file", "memory", "mine", "zz"]
    for scheme in schemes():
        if scheme not in ("file", "memory"):
            async with open_storage(f"{scheme}://somewhere"):
                pass
    assert [url for url, _ in found.opened] == [
        "stores aa://somewhere",
        "mine mine://somewhere",
        "stores zz://somewhere",
    ]


async def test_registered_factory_precedes_plugins_and_is_replaceable(found: Found) -> None:
    found.add("cloud", "cl")
    register_writer_factory("cl", StorageFactory("first", ("cl",), found.opener("first")))
    register_writer_factory("cl", StorageFactory("mine", ("cl",), found.opener("mine")))
    async with located("cl://bucket/a/b", storage_options={"x": 1}) as (_, key):
        assert key == "a/b"
    async with located("cl:a/b") as (_, key):
        assert key == "a/b"
    assert found.opened == [("mine cl://bucket", {"x": 1}), ("mine cl:", {})]


@pytest.mark.parametrize(
    ("prefix", "factory", "error", "says"),
    [
        ("a:b", StorageFactory("x", (), MemoryStorage), ValueError, "':'"),  # type: ignore[arg-type]  # never opened
        ("", StorageFactory("x", (), MemoryStorage), ValueError, "empty"),  # type: ignore[arg-type]  # never opened
        (3, StorageFactory("x", (), MemoryStorage), TypeError, "int"),  # type: ignore[arg-type]  # never opened
        ("foo", object(), TypeError, r"open\(path\)"),
        ("foo", MemoryStorage, TypeError, r"open\(path\)"),
    ],
)
async def test_invalid_registration_is_rejected(
    found: Found, prefix: Any, factory: Any, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        register_writer_factory(prefix, factory)
    assert registry.registered == {}


async def test_folder_is_located_with_its_key_prefix(tmp_path: Path) -> None:
    async with located_folder(tmp_path / "a") as (storage, prefix):
        assert (storage.root, prefix) == (str(tmp_path / "a"), "")
    memory = MemoryStorage()
    async with located_folder("a/b", storage=memory) as (storage, prefix):
        assert (storage, prefix) == (memory, "a/b/")
