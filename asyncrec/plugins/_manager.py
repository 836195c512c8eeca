"""The plugins of the installed distributions.

Plugins are found by their entry points (group ``asyncrec``) and imported by `Plugins.load`. A plugin that cannot be
used, because its import fails or raises SystemExit, or a hook is misspelt or returns an invalid value, does not affect
the others. Its error is kept, and is shown where the plugin would have been needed. Built-in stores, commands and
formats use the same hooks, but are imported directly by the modules that need them, so they work without installed
metadata (in a zipapp, or from a checkout on the path).

``ASYNCREC_DISABLE_PLUGINS=1`` disables all external plugins; a comma-separated list of entry point names disables
only those plugins.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import pluggy

from asyncrec.errors import PluginError
from asyncrec.plugins import _hookspecs as hookspecs

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

DISABLE = "ASYNCREC_DISABLE_PLUGINS"

T = TypeVar("T")

logger = logging.getLogger("asyncrec.plugins")


class Plugins:
    """The external plugins found so far.

    Attributes:
        broken: the error of each plugin that is unusable, as a whole or in part, by the name of its entry point, or of
            its distribution if the metadata cannot be read.
        disabled: the names of disabled entry points.
        loaded: whether the search for external plugins is complete.
    """

    def __init__(self) -> None:
        self.broken: dict[str, BaseException] = {}
        self.disabled: list[str] = []
        self.loaded = False
        self._loading = threading.Lock()
        self._manager = pluggy.PluginManager(hookspecs.PROJECT)
        self._manager.add_hookspecs(hookspecs)
        self._names: dict[Any, str] = {}

    def load(self) -> None:
        """Find and import the external plugins, once. Call this in a worker thread, because the imports take time."""
        with self._loading:
            if self.loaded:
                return
            setting = os.environ.get(DISABLE, "").strip()
            turned_off = {name.strip() for name in setting.split(",")}
            seen = set()
            for entry in self._entries():
                if entry.value.startswith("asyncrec.") or (entry.name, entry.value) in seen:
                    continue
                seen.add((entry.name, entry.value))
                if setting in ("1", "true", "all") or entry.name in turned_off:
                    self.disabled.append(entry.name)
                    continue
                try:
                    self.register(entry.name, entry.load())
                except BaseException as error:  # SystemExit, too
                    self.note(entry.name, error)
            self.loaded = True

    def gather(self, hook: str, check: Callable[[str, Any], T]) -> list[tuple[str, T]]:
        """Return the results of one hook of all external plugins, converted by ``check``, each with its plugin's name.

        If a plugin's hook fails, or ``check`` rejects one of its results with a PluginError, the plugin contributes
        nothing to this hook and is recorded as broken. Its results of other hooks are kept.
        """
        found: list[tuple[str, T]] = []
        for plugin, name in list(self._names.items()):
            others = [other for other in self._manager.get_plugins() if other is not plugin]
            try:
                given = self._manager.subset_hook_caller(hook, others)()
                found += [(name, check(name, each)) for several in given for each in several]
            except BaseException as error:  # SystemExit, too
                self.note(name, error)
        return found

    def register(self, name: str, plugin: Any) -> None:
        """Register a plugin's module. Raise PluginError if one of its hooks has an unknown name."""
        self._manager.register(plugin)
        try:
            self._manager.check_pending()
        except pluggy.PluginValidationError as error:
            self._manager.unregister(plugin)
            raise PluginError(f"the plugin {name!r} implements a hook that asyncrec does not have: {error}") from error
        self._names[plugin] = name

    def note(self, name: str, error: BaseException) -> None:
        """Record that the plugin with this name, or a part of it, cannot be used."""
        if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            raise error  # the user interrupted; in any other thread, the plugin itself raised the error
        self.broken.setdefault(name, error)
        logger.warning("the plugin %r could not be loaded and is ignored: %r", name, error, extra={"plugin": name})

    def _entries(self) -> Iterator[EntryPoint]:
        from importlib.metadata import distributions, entry_points

        try:
            yield from entry_points(group=hookspecs.PROJECT)
            return
        except Exception as error:  # a distribution, perhaps one without plugins, has unreadable metadata
            logger.warning("the entry points of the installed distributions could not all be read at once: %r", error)
        for distribution in distributions():
            try:
                yield from distribution.entry_points.select(group=hookspecs.PROJECT)
            except Exception as error:
                self.broken[distribution.metadata["Name"]] = error


PLUGINS = Plugins()
"""The plugins of this process, shared by stores, commands and formats."""
