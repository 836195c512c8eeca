"""Modules as plugins are, and what is found when they are all there are: for the tests of commands and of formats."""

from __future__ import annotations

from types import ModuleType

from asyncrec.plugins import hookimpl
from asyncrec.plugins._manager import Plugins

__all__ = ["found", "plugin"]


def plugin(hook: str, name: str, *given: object) -> ModuleType:
    """A module whose hook ``asyncrec_<hook>`` gives these."""
    module = ModuleType(name)
    setattr(module, f"asyncrec_{hook}", hookimpl(lambda: list(given), specname=f"asyncrec_{hook}"))
    return module


def found(*modules: ModuleType) -> Plugins:
    """The plugins, where these modules are all of them."""
    plugins = Plugins()
    plugins.loaded = True
    for module in modules:
        plugins.register(module.__name__, module)
    return plugins
