"""Plugin modules made in memory, and a registry with only these plugins, for the tests of commands and formats."""

from __future__ import annotations

from types import ModuleType

from asyncrec.plugins import hookimpl
from asyncrec.plugins._manager import Plugins

__all__ = ["found", "plugin"]


def plugin(hook: str, name: str, *given: object) -> ModuleType:
    """Return a module whose hook ``asyncrec_<hook>`` returns the given objects."""
    module = ModuleType(name)
    setattr(module, f"asyncrec_{hook}", hookimpl(lambda: list(given), specname=f"asyncrec_{hook}"))
    return module


def found(*modules: ModuleType) -> Plugins:
    """Return a plugin registry that contains these modules and no others."""
    plugins = Plugins()
    plugins.loaded = True
    for module in modules:
        plugins.register(module.__name__, module)
    return plugins
