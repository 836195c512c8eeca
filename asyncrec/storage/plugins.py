"""The backends there are: ours, and those that installed distributions bring.

Ours are registered directly, so that they work where no metadata is installed (a zipapp, a checkout on the path).
External ones are found by their entry points (group ``asyncrec``) and imported by `Plugins.load`. One that cannot be
used (its import fails, a hook is misspelt) breaks no other: its error is kept, and shown where its scheme is missed.

``ASYNCREC_DISABLE_PLUGINS=1`` leaves external ones out; a comma-separated list of entry points' names leaves out those.
"""

from __future__ import annotations

import logging
import os
import threading
from importlib.metadata import entry_points
from typing import Any

import pluggy

from asyncrec.errors import PluginError
from asyncrec.storage import hookspecs, local, memory
from asyncrec.storage.base import StorageFactory

__all__ = ["DISABLE", "Plugins"]

DISABLE = "ASYNCREC_DISABLE_PLUGINS"

logger = logging.getLogger("asyncrec.storage")

_BUILT_IN = {"local": local, "memory": memory}


class Plugins:
    """What was found.

    Attributes:
        by_scheme: the factories that answer to each.
        broken: by the name of the entry point, why it cannot be used.
        disabled: the names of entry points left out.
        loaded: whether external ones were looked for.
    """

    def __init__(self) -> None:
        self.by_scheme: dict[str, list[StorageFactory]] = {}
        self.broken: dict[str, Exception] = {}
        self.disabled: list[str] = []
        self.loaded = False
        self._loading = threading.Lock()
        self._manager = pluggy.PluginManager(hookspecs.PROJECT)
        self._manager.add_hookspecs(hookspecs)
        for name, module in _BUILT_IN.items():
            self._add(name, module)

    @property
    def schemes(self) -> list[str]:
        return [f"{scheme}://" for scheme in sorted(self.by_scheme) if scheme]

    def load(self) -> None:
        """Find and import the external ones, once. Blocks, for as long as their imports take."""
        with self._loading:
            if self.loaded:
                return
            setting = os.environ.get(DISABLE, "").strip()
            turned_off = {name.strip() for name in setting.split(",")}
            ours = {module.__name__ for module in _BUILT_IN.values()}
            seen = set()
            for entry in entry_points(group=hookspecs.PROJECT):
                if entry.value in ours or (entry.name, entry.value) in seen:
                    continue
                seen.add((entry.name, entry.value))
                if setting in ("1", "true", "all") or entry.name in turned_off:
                    self.disabled.append(entry.name)
                    continue
                try:
                    self._add(entry.name, entry.load())
                except Exception as error:
                    self.broken[entry.name] = error
                    logger.warning("the plugin %r (%s) cannot be used: %r", entry.name, entry.value, error)
            self.loaded = True

    def _add(self, name: str, plugin: Any) -> None:
        self._manager.register(plugin)
        try:
            self._manager.check_pending()
            others = [other for other in self._manager.get_plugins() if other is not plugin]
            hook = self._manager.subset_hook_caller("asyncrec_storage_factories", others)
            factories = [factory for found in hook() for factory in found]
        except Exception as error:
            self._manager.unregister(plugin)
            if isinstance(error, pluggy.PluginValidationError):
                raise PluginError(f"the plugin {name!r} has a hook of no known name: {error}") from error
            raise
        found = [(factory, _schemes(name, factory)) for factory in factories]
        for factory, schemes in found:
            for scheme in schemes:
                self.by_scheme.setdefault(scheme, []).append(factory)


def _schemes(name: str, factory: object) -> list[str]:
    if not isinstance(factory, StorageFactory):
        raise PluginError(f"the plugin {name!r} gave {factory!r} where a StorageFactory belongs")
    if isinstance(factory.schemes, str):
        raise PluginError(f"the plugin {name!r} gave the string {factory.schemes!r} for its schemes; give a tuple")
    schemes = list(factory.schemes)
    if "" in schemes and name not in _BUILT_IN:
        # Local paths are opened without looking for plugins, and must not change their meaning when some are found.
        raise PluginError(f"the plugin {name!r} claims paths without a scheme; a driver for files is file+{name}")
    return schemes
