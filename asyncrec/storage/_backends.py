"""Find the storage backends, both those built in and those provided by installed plugins.

No plugin can claim a built-in scheme. Therefore, the meaning of a built-in scheme does not depend on the installed
packages, and its paths are opened without loading plugins.
"""

from __future__ import annotations

import threading
from typing import Any

from asyncrec.errors import PluginError
from asyncrec.plugins._manager import PLUGINS, Plugins
from asyncrec.storage import _memory as memory
from asyncrec.storage._factory import StorageFactory
from asyncrec.storage._local import storage as local
from asyncrec.storage._url import scheme_of

_BUILT_IN = (local, memory)


class Backends:
    """The backends that have been found.

    Attributes:
        plugins: the installed plugins; error messages list its ``broken`` and ``disabled`` plugins.
        by_scheme: the factories that serve each scheme.
        built_in: the schemes of the built-in backends.
        loaded: whether the factories of plugins are included.
    """

    def __init__(self, plugins: Plugins = PLUGINS) -> None:
        self.plugins = plugins
        self.by_scheme: dict[str, list[StorageFactory]] = {}
        for module in _BUILT_IN:
            self._add(*module.asyncrec_storage_factories())
        self.built_in = frozenset(self.by_scheme)
        self.loaded = False
        self._loading = threading.Lock()

    @property
    def schemes(self) -> list[str]:
        return [f"{scheme}://" for scheme in sorted(self.by_scheme) if scheme]

    def load(self) -> None:
        """Add the factories of plugins, once. Call this in a worker thread, because importing plugins can be slow."""
        with self._loading:
            if not self.loaded:
                self.plugins.load()
                self._add(*(factory for _, factory in self.plugins.gather("asyncrec_storage_factories", self._checked)))
                self.loaded = True

    def _add(self, *factories: StorageFactory) -> None:
        for factory in factories:
            for scheme in factory.schemes:
                self.by_scheme.setdefault(scheme, []).append(factory)

    def _checked(self, name: str, factory: Any) -> StorageFactory:
        """Return the factory. Raise PluginError if its type or name is wrong, or a scheme is invalid or built in."""
        if not isinstance(factory, StorageFactory):
            raise PluginError(f"the plugin {name!r} returned {factory!r} instead of a StorageFactory")
        if not isinstance(factory.name, str):
            raise PluginError(
                f"the plugin {name!r} returned a StorageFactory with the name {factory.name!r}; a name must be a str"
            )
        if isinstance(factory.schemes, str):
            raise PluginError(
                f"the plugin {name!r} returned the str {factory.schemes!r} as its schemes; it must return a tuple"
            )
        schemes = list(factory.schemes)
        for scheme in schemes:
            if not isinstance(scheme, str) or (scheme and scheme_of(f"{scheme}:") != scheme):
                raise PluginError(
                    f"the plugin {name!r} returned the scheme {scheme!r}; a scheme must be a str of two or more "
                    "lower-case letters, digits, '+', '-' and '.', starting with a letter"
                )
            if scheme in self.built_in:
                # Built-in schemes are opened before plugins are loaded, so a plugin must not change their meaning.
                what = f"{scheme}://" if scheme else "paths without a scheme"
                driver = f"{scheme or 'file'}+{name}"
                raise PluginError(
                    f"the plugin {name!r} claims {what}, which are built in; register a driver for them as {driver}"
                )
        return factory
