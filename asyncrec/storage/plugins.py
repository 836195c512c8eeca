"""The backends there are: ours, and those that installed distributions bring.

Ours are registered directly, so that they work where no metadata is installed (a zipapp, a checkout on the path).
External ones are found by their entry points (group ``asyncrec``) and imported by `Plugins.load`. One that cannot be
used (its import fails or ends the program, a hook is misspelt, a scheme is none or one of ours) breaks no other: its
error is kept, and shown where its scheme is missed. So local paths, ``file:`` and ``memory:`` mean the same whatever is
installed, and opening them looks for nothing.

``ASYNCREC_DISABLE_PLUGINS=1`` leaves external ones out; a comma-separated list of entry points' names leaves out those.
"""

from __future__ import annotations

import logging
import os
import threading
from importlib.metadata import EntryPoint, distributions, entry_points
from typing import Any

import pluggy

from asyncrec.errors import PluginError
from asyncrec.storage import hookspecs, local, memory
from asyncrec.storage.base import StorageFactory
from asyncrec.storage.url import scheme_of

__all__ = ["DISABLE", "Plugins"]

DISABLE = "ASYNCREC_DISABLE_PLUGINS"

logger = logging.getLogger("asyncrec.storage")

_BUILT_IN = {"local": local, "memory": memory}


class Plugins:
    """What was found.

    Attributes:
        by_scheme: the factories that answer to each.
        built_in: the schemes that ours answer to, and nobody else.
        broken: by the name of the entry point, why it cannot be used.
        disabled: the names of entry points left out.
        loaded: whether external ones were looked for.
    """

    def __init__(self) -> None:
        self.by_scheme: dict[str, list[StorageFactory]] = {}
        self.built_in: frozenset[str] = frozenset()
        self.broken: dict[str, BaseException] = {}
        self.disabled: list[str] = []
        self.loaded = False
        self._loading = threading.Lock()
        self._manager = pluggy.PluginManager(hookspecs.PROJECT)
        self._manager.add_hookspecs(hookspecs)
        for name, module in _BUILT_IN.items():
            self._add(name, module)
        self.built_in = frozenset(self.by_scheme)

    @property
    def schemes(self) -> list[str]:
        return [f"{scheme}://" for scheme in sorted(self.by_scheme) if scheme]

    def load(self) -> None:
        """Find and import the external ones, once. For a worker thread: their imports take their time."""
        with self._loading:
            if self.loaded:
                return
            setting = os.environ.get(DISABLE, "").strip()
            turned_off = {name.strip() for name in setting.split(",")}
            ours = {module.__name__ for module in _BUILT_IN.values()}
            seen = set()
            for entry in self._entries():
                if entry.value in ours or (entry.name, entry.value) in seen:
                    continue
                seen.add((entry.name, entry.value))
                if setting in ("1", "true", "all") or entry.name in turned_off:
                    self.disabled.append(entry.name)
                    continue
                try:
                    self._add(entry.name, entry.load())
                except BaseException as error:  # SystemExit too: no interruption of the user's comes to this thread
                    self.broken[entry.name] = error
                    logger.warning("the plugin %r (%s) cannot be used: %r", entry.name, entry.value, error)
            self.loaded = True

    def _entries(self) -> list[EntryPoint]:
        try:
            return list(entry_points(group=hookspecs.PROJECT))
        except Exception as error:  # the metadata of some distribution, of no plugin perhaps, cannot be read
            logger.warning("the entry points of what is installed cannot be read at once: %r", error)
        found: list[EntryPoint] = []
        for distribution in distributions():
            try:
                found += distribution.entry_points.select(group=hookspecs.PROJECT)
            except Exception as error:
                self.broken[distribution.metadata["Name"]] = error
        return found

    def _add(self, name: str, plugin: Any) -> None:
        self._manager.register(plugin)
        try:
            self._manager.check_pending()
            others = [other for other in self._manager.get_plugins() if other is not plugin]
            hook = self._manager.subset_hook_caller("asyncrec_storage_factories", others)
            factories = [factory for given in hook() for factory in given]
            found = [(factory, _schemes(name, factory, self.built_in)) for factory in factories]
        except BaseException as error:
            self._manager.unregister(plugin)
            if isinstance(error, pluggy.PluginValidationError):
                raise PluginError(f"the plugin {name!r} has a hook of no known name: {error}") from error
            raise
        for factory, schemes in found:
            for scheme in schemes:
                self.by_scheme.setdefault(scheme, []).append(factory)


def _schemes(name: str, factory: object, built_in: frozenset[str]) -> list[str]:
    """The schemes of a factory that may be taken in. Raises PluginError for what is none."""
    if not isinstance(factory, StorageFactory):
        raise PluginError(f"the plugin {name!r} gave {factory!r} where a StorageFactory belongs")
    if not isinstance(factory.name, str):
        raise PluginError(f"the plugin {name!r} gave a StorageFactory the name {factory.name!r}; give a str")
    if isinstance(factory.schemes, str):
        raise PluginError(f"the plugin {name!r} gave the string {factory.schemes!r} for its schemes; give a tuple")
    schemes = list(factory.schemes)
    for scheme in schemes:
        if not isinstance(scheme, str) or (scheme and scheme_of(f"{scheme}:") != scheme):
            raise PluginError(
                f"the plugin {name!r} gave the scheme {scheme!r}; one is a str of two or more lower-case letters, "
                "digits, '+', '-' and '.', a letter first"
            )
        if scheme in built_in:
            # They are opened without looking for plugins, and must not change their meaning when some are found.
            what = f"{scheme}://" if scheme else "paths without a scheme"
            driver = f"{scheme or 'file'}+{name}"
            raise PluginError(f"the plugin {name!r} claims {what}, which are built in; a driver for them is {driver}")
    return schemes
