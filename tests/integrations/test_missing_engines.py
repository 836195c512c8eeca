"""Errors name a library that is not installed, and the extra that installs it."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import pytest


@pytest.mark.parametrize(
    ("extra", "needs"),
    [
        ("arrow", "pyarrow"),
        ("opentelemetry", "opentelemetry"),
        ("prometheus", "prometheus_client"),
        ("ray", "ray"),
        ("spark", "pyspark"),
    ],
)
def test_missing_library_error_names_extra_to_install(extra: str, needs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    package = f"asyncrec.integrations.{extra}"
    for name in [name for name in sys.modules if name == package or name.startswith(f"{package}.")]:
        monkeypatch.delitem(sys.modules, name)

    class Missing:
        def find_spec(self, name: str, path: Any, target: Any = None) -> None:
            if name == needs:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    for name in [name for name in sys.modules if name == needs or name.startswith(f"{needs}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Missing(), *sys.meta_path])
    with pytest.raises(ModuleNotFoundError, match=rf"pip install 'asyncrec\[{extra}\]'") as raised:
        import_module(package)
    assert raised.value.name == needs
