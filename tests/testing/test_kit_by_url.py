"""The storage kit uses the URL from a plugin's tests, and detects a URL that leads nowhere or to a different place."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any

import anyio
import pytest

from asyncrec.errors import AmbiguousSchemeError, UnknownSchemeError
from asyncrec.plugins import hookimpl
from asyncrec.plugins._manager import DISABLE, Plugins
from asyncrec.storage import MemoryStorage, PrefixedStorage, Storage, StorageFactory
from asyncrec.storage import _registry as registry
from asyncrec.storage._backends import Backends
from asyncrec.testing import StorageConformance

pytestmark = pytest.mark.anyio

PREFIX = "test_prefix_after_root"
CASES = ("test_found_by_scheme", "test_records_read_by_url", "test_records_written_by_url", PREFIX)


class Kit(StorageConformance):
    __test__ = False
    url: str | None = "toy://kit"

    @asynccontextmanager
    async def open_storage(self) -> AsyncIterator[Storage]:
        storage = MemoryStorage("kit")
        try:
            yield storage
        finally:
            for key in [info.key async for info in storage.list_objects()]:
                await storage.delete(key)

    def by_url(self, storage: Storage) -> tuple[str, Mapping[str, Any]] | None:
        return None if self.url is None else (self.url, {"chunk_size": 1_000})

    async def raw_put(self, storage: Storage, key: str, data: bytes) -> None:
        await storage.put(key, data)

    async def raw_get(self, storage: Storage, key: str) -> bytes | None:
        found = [info.key async for info in storage.list_objects(key)]
        return await storage.get(key) if key in found else None

    async def raw_unfinished(self, storage: Storage) -> Collection[str]:
        return []


class Installed:
    """Installs plugins for a test, each with a backend for the scheme ``toy``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entries: list[EntryPoint] = []
        self._patch = monkeypatch
        monkeypatch.setattr("importlib.metadata.entry_points", lambda group: self.entries)
        monkeypatch.setattr(registry, "_backends", Backends(Plugins()))
        monkeypatch.setattr(registry, "registered", {})
        monkeypatch.delenv(DISABLE, raising=False)

    def add(self, name: str, *, leads_to: str = "kit", forgets_the_prefix: bool = False) -> StorageFactory:
        @asynccontextmanager
        async def open_toy(url: str, *, chunk_size: int) -> AsyncIterator[Storage]:
            storage = MemoryStorage(leads_to, chunk_size=chunk_size)
            prefix = url.partition("://")[2].partition("/")[2]
            yield PrefixedStorage(storage, prefix) if prefix and not forgets_the_prefix else storage

        factory = StorageFactory(name, ("toy",), open_toy)
        self.add_hook(name, lambda: [factory])
        return factory

    def add_hook(self, name: str, hook: Any) -> None:
        module = ModuleType(name)
        module.asyncrec_storage_factories = hookimpl(hook)  # type: ignore[attr-defined]  # as in a plugin's source
        self._patch.setitem(sys.modules, name, module)
        self.entries.append(EntryPoint(name, name, "asyncrec"))


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Installed:
    return Installed(monkeypatch)


@pytest.mark.parametrize("case", CASES)
async def test_installed_plugin_passes(installed: Installed, case: str) -> None:
    installed.add("toy_plugin")
    await getattr(Kit(), case)()


@pytest.mark.parametrize("case", CASES)
async def test_cases_are_skipped_without_url(installed: Installed, case: str) -> None:
    kit = Kit()
    kit.url = None
    with pytest.raises(pytest.skip.Exception, match="by_url returns None"):
        await getattr(kit, case)()


async def test_positional_backend_option_is_detected(installed: Installed) -> None:
    @asynccontextmanager
    async def open_toy(url: str, chunk_size: int = 1_000) -> AsyncIterator[Storage]:
        yield MemoryStorage("kit", chunk_size=chunk_size)

    installed.add_hook("toy_plugin", lambda: [StorageFactory("toy_plugin", ("toy",), open_toy)])
    with pytest.raises(
        AssertionError, match=r"accepts the option 'chunk_size' as a positional argument; make it keyword-only"
    ):
        await Kit().test_found_by_scheme()


@pytest.mark.parametrize(("imports", "heavy"), [("json", False), ("anyio", True)])
async def test_plugin_with_heavy_imports_is_detected(
    installed: Installed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, imports: str, heavy: bool
) -> None:
    (tmp_path / "toy_plugin.py").write_text(f"import {imports}\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    installed.add("toy_plugin")
    installed.add_hook("another", lambda: ())
    if not heavy:
        await Kit().test_cheap_import_of_plugin()
        return
    with pytest.raises(AssertionError, match=r"importing toy_plugin imports .*anyio"):
        await Kit().test_cheap_import_of_plugin()


@pytest.mark.parametrize("case", CASES)
async def test_plugin_without_entry_point_is_detected(installed: Installed, case: str) -> None:
    with pytest.raises(UnknownSchemeError, match="no backend serves 'toy'"):
        await getattr(Kit(), case)()


async def test_plugin_registered_only_by_call_is_detected(installed: Installed) -> None:
    registry.register_writer_factory("toy", installed.add("toy_plugin"))
    installed.entries.clear()
    await Kit().test_records_written_by_url()  # the plugin is known in this process
    with pytest.raises(AssertionError, match="registered by register_writer_factory"):
        await Kit().test_found_by_scheme()


async def test_unusable_plugin_is_reported_with_reason(installed: Installed) -> None:
    def broken() -> Iterable[StorageFactory]:
        raise ImportError("no module named 'client'")

    installed.add_hook("toy_plugin", broken)
    with pytest.raises(UnknownSchemeError, match="no module named 'client'"):
        await Kit().test_found_by_scheme()


async def test_two_plugins_for_one_scheme_are_detected(installed: Installed) -> None:
    installed.add("toy_plugin")
    installed.add("another")
    with pytest.raises(AmbiguousSchemeError, match="toy_plugin, another"):
        await Kit().test_found_by_scheme()


async def test_url_of_another_storage_is_detected(installed: Installed) -> None:
    installed.add("toy_plugin", leads_to=f"elsewhere on {anyio.get_current_task().id}")
    with pytest.raises(FileNotFoundError):
        await Kit().test_records_read_by_url()
    with pytest.raises(AssertionError, match="does not lead to this storage"):
        await Kit().test_records_written_by_url()


async def test_plugin_ignoring_url_prefix_is_detected(installed: Installed) -> None:
    """Otherwise, two folders of a store would be the same."""
    installed.add("toy_plugin", forgets_the_prefix=True)
    await Kit().test_records_written_by_url()
    with pytest.raises(AssertionError, match="toy://kit/by-url/one was opened, but its key k is not by-url/one/k"):
        await getattr(Kit(), PREFIX)()
