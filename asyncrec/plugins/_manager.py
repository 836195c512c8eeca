"""The plugins that installed distributions bring.

They are found by their entry points (group ``asyncrec``) and imported by `Plugins.load`. One that cannot be used (its
import fails or ends the program, a hook is misspelt, or returns what it must not) stops no other: its error is kept,
and shown where the plugin is missed. What is built in uses the same hooks, and is found by the modules that need it,
without a search: so it works without installed metadata (a zipapp, a checkout on the path).

``ASYNCREC_DISABLE_PLUGINS=1`` leaves external ones out; a comma-separated list of entry points' names leaves out those.
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
    """What was found.

    Attributes:
        broken: by the name of the entry point, why it cannot be used, or not all of it.
        disabled: the names of entry points left out.
        loaded: whether external ones were looked for.
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
        """Find and import the external ones, once. For a worker thread: their imports take their time."""
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
                except BaseException as error:  # SystemExit too
                    self.note(entry.name, error)
            self.loaded = True

    def gather(self, hook: str, check: Callable[[str, Any], T]) -> list[tuple[str, T]]:
        """Return what the external ones return to a hook, each with the name of its plugin, as ``check`` makes it.

        A plugin whose hook fails, or of which ``check`` refuses anything (a PluginError), returns nothing, and is noted
        as broken; whatever it returns to other hooks stays.
        """
        found: list[tuple[str, T]] = []
        for plugin, name in list(self._names.items()):
            others = [other for other in self._manager.get_plugins() if other is not plugin]
            try:
                given = self._manager.subset_hook_caller(hook, others)()
                found += [(name, check(name, each)) for several in given for each in several]
            except BaseException as error:  # as above
                self.note(name, error)
        return found

    def register(self, name: str, plugin: Any) -> None:
        """Take in a plugin's module. Raises PluginError: one of its hooks has no known name."""
        self._manager.register(plugin)
        try:
            self._manager.check_pending()
        except pluggy.PluginValidationError as error:
            self._manager.unregister(plugin)
            raise PluginError(f"the plugin {name!r} implements a hook that asyncrec does not have: {error}") from error
        self._names[plugin] = name

    def note(self, name: str, error: BaseException) -> None:
        """Something of the plugin of this name cannot be used."""
        if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            raise error  # the user's; in another thread it is the plugin's own
        self.broken.setdefault(name, error)
        logger.warning("the plugin %r could not be loaded and is ignored: %r", name, error, extra={"plugin": name})

    def _entries(self) -> Iterator[EntryPoint]:
        from importlib.metadata import distributions, entry_points

        try:
            yield from entry_points(group=hookspecs.PROJECT)
            return
        except Exception as error:  # the metadata of some distribution, of no plugin perhaps, cannot be read
            logger.warning("the entry points of the installed distributions could not all be read at once: %r", error)
        for distribution in distributions():
            try:
                yield from distribution.entry_points.select(group=hookspecs.PROJECT)
            except Exception as error:
                self.broken[distribution.metadata["Name"]] = error


PLUGINS = Plugins()
"""Those of this process: stores, commands and formats are looked for in one place."""
