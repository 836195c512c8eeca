"""Import a package's names on first use (PEP 562), so that a program loads only the modules it uses."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy(
    package: str, homes: Mapping[str, str], *, modules: str = ""
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return the ``__getattr__``, ``__dir__`` and ``__all__`` of a package whose names are defined in other modules.

    Args:
        package: the ``__name__`` of the package.
        homes: a mapping from each module to the names that it defines, separated by spaces.
        modules: the submodules to import on first use as attributes, separated by spaces. They are not in ``__all__``.
    """
    submodules = modules.split()
    home = {name: module for module, names in homes.items() for name in names.split()}

    def getattribute(name: str) -> Any:
        if name in submodules:
            return import_module(f"{package}.{name}")
        if name == "__version__" and "." not in package:
            return import_module("importlib.metadata").version(package)  # slow to import
        module = home.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(module), name)
        setattr(sys.modules[package], name, value)
        return value

    def directory() -> list[str]:
        return sorted({*vars(sys.modules[package]), *home, *submodules})

    return getattribute, directory, sorted(home)
