"""Cases that open a storage as programs do, from a URL through the plugin's entry point, and read and write records."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from inspect import signature
from typing import Any

from asyncrec._concurrency.tasks import in_thread
from asyncrec._framing.frames import encode_frames
from asyncrec._records.reading.reader import read_records
from asyncrec._records.writing.writer import write_records
from asyncrec.plugins._manager import Plugins
from asyncrec.storage._backends import Backends
from asyncrec.storage._base import Storage
from asyncrec.storage._registry import factory_among, open_storage, registered_for
from asyncrec.storage._url import join, redact
from asyncrec.testing._checks import content
from asyncrec.testing._kit import check_import, nothing_to_try
from asyncrec.testing._storage.hooks import StorageHooks, keys_of

_READ = "by-url/read.tfrecord"
_WRITTEN = "by-url/written.tfrecord"
_RECORDS = [b"one", b"", content(5_000)]


class SchemeCases(StorageHooks):
    """The cases for every plugin, including read-only ones."""

    def _url_of(self, storage: Storage) -> tuple[str, Mapping[str, Any]]:
        """Return the result of `by_url`. Skip the case if the storage has no URL."""
        given = self.by_url(storage)
        if given is None:
            nothing_to_try("by_url returns None, so this storage cannot be reached by a URL")
        return given

    async def test_found_by_scheme(self) -> None:
        """Exactly one installed plugin provides the URL's scheme, through an entry point."""
        async with self.open_storage() as storage:
            url, _ = self._url_of(storage)
        assert registered_for(url) is None, (
            f"{redact(url)}: this scheme was registered by register_writer_factory, which a program that only "
            "installs the plugin does not call; declare an entry point of the group 'asyncrec'"
        )
        factory = await factory_among(Backends(Plugins()), url)
        for option in list(signature(factory.open).parameters.values())[1:]:
            assert option.kind in (option.KEYWORD_ONLY, option.VAR_KEYWORD), (
                f"{redact(url)}: the factory accepts the option {option.name!r} as a positional argument; make "
                "it keyword-only"
            )

    async def test_cheap_import_of_plugin(self) -> None:
        """The entry point's module imports no slow packages. It is imported even to open the paths of other plugins."""
        async with self.open_storage() as storage:
            url, _ = self._url_of(storage)
        plugins = Plugins()
        factory = await factory_among(Backends(plugins), url)
        found = plugins.gather("asyncrec_storage_factories", lambda name, each: (name, each))
        owners = {name for _, (name, each) in found if each.name == factory.name}
        for entry in importlib.metadata.entry_points(group="asyncrec"):
            if entry.name in owners:  # built-in backends have no entry point
                await in_thread(check_import, entry.module)

    async def test_records_read_by_url(self) -> None:
        """`asyncrec.read_records` reads an object of the storage by its URL."""
        async with self.open_storage() as storage:
            url, options = self._url_of(storage)
            await self.raw_put(storage, _READ, _encoded())
            assert await read_records(join(url, _READ), storage_options=dict(options)) == _RECORDS


class UrlCases(SchemeCases):
    """The cases for plugins that also write."""

    async def test_records_written_by_url(self) -> None:
        """An object that `asyncrec.write_records` writes to the URL is in the storage, listed and readable."""
        async with self.open_storage() as storage:
            url, options = self._url_of(storage)
            await write_records(join(url, _WRITTEN), _RECORDS, storage_options=dict(options))
            assert await self.raw_get(storage, _WRITTEN) == _encoded(), f"{redact(url)} does not lead to this storage"
            assert await read_records(join(url, _WRITTEN), storage_options=dict(options)) == _RECORDS
            async with open_storage(url, **options) as opened:
                assert await keys_of(opened, "by-url/") == [_WRITTEN]
            assert not await self.raw_unfinished(storage)

    async def test_prefix_after_root(self) -> None:
        """If a folder is appended to the URL, `asyncrec.open_storage` opens only the keys below that folder."""
        async with self.open_storage() as storage:
            url, options = self._url_of(storage)
            folders = ["by-url/one", "by-url/two"]
            for folder in folders:
                async with open_storage(join(url, folder), **options) as opened:
                    info = await opened.put("k", folder.encode())
                    assert info.key == "k", f"{redact(join(url, folder))} was opened, but its key k is {info.key!r}"
                assert await self.raw_get(storage, f"{folder}/k") == folder.encode(), (
                    f"{redact(join(url, folder))} was opened, but its key k is not {folder}/k; check that the "
                    "prefix is used. asyncrec.storage.PrefixedStorage puts it before each key"
                )
            for folder in folders:
                async with open_storage(join(url, folder), **options) as opened:
                    assert await opened.get("k") == folder.encode()
                    assert await keys_of(opened) == ["k"], (
                        f"{redact(join(url, folder))} lists objects outside this prefix"
                    )


def _encoded() -> bytes:
    return b"".join(encode_frames(_RECORDS))
