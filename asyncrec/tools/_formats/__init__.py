"""`Formats` lists the formats for `asyncrec.tools.convert`: the built-in JSON lines and CSV, and those of plugins.

The built-in formats are found without loading plugins. A plugin cannot use their names or suffixes, or those of
TFRecord files. If a known format is not installed, the error names the package to install.
"""

from __future__ import annotations

import re
import threading
from typing import Any

from asyncrec._concurrency.tasks import in_thread
from asyncrec.errors import ArgumentValueError, PluginError
from asyncrec.plugins._kinds import Format
from asyncrec.plugins._manager import DISABLE, PLUGINS, Plugins
from asyncrec.tools._formats import csv, jsonl

__all__ = ["FORMATS", "RECORDS", "Formats"]

RECORDS = "tfrecord"
"""The name of the TFRecord format, which is assumed for files whose suffix is unknown."""

_BUILT_IN = (jsonl, csv)
# The formats provided by known distributions, with their suffixes.
_KNOWN = {"parquet": (".parquet",), "warc": (".warc", ".warc.gz")}
_PACKAGES = {"parquet": "asyncrec-formats", "warc": "asyncrec-formats"}

_NAME = re.compile(r"[a-z][a-z0-9-]*")
_SUFFIX = re.compile(r"(\.[a-z0-9_-]+)+")


class Formats:
    """The formats that this process knows. Plugins are loaded once, when they are first needed."""

    def __init__(self, plugins: Plugins = PLUGINS) -> None:
        self._plugins = plugins
        self._built_in: list[Format] = [each for module in _BUILT_IN for each in module.asyncrec_formats()]
        self._found = {each.name: each for each in self._built_in}
        self._suffixes = {suffix: name for name, suffixes in _KNOWN.items() for suffix in suffixes}
        self._suffixes |= {suffix: each.name for each in self._built_in for suffix in each.suffixes}
        self._loaded = False
        self._loading = threading.Lock()

    async def look_for(self, source: str, target: str = RECORDS) -> None:
        """Add the formats of plugins, unless both sides of a conversion have built-in formats.

        ``source`` and ``target`` are names of formats or of files. A name without a suffix is a data set if it is the
        target, or if it is the source and the target has a built-in format. Otherwise, it is a folder, whose files may
        have any format.
        """
        writes_records = target == RECORDS or self._of_built_in(target) is None
        to_known = self._is_known(target) or "." not in _base(target)
        from_known = self._is_known(source) or (not writes_records and "." not in _base(source))
        if not self._loaded and not (to_known and from_known):
            await in_thread(self._load)

    def of(self, file: str) -> str:
        """Return the name of the format with a file's suffix, or `RECORDS` if the suffix is unknown."""
        lower = file.lower()
        found = max((suffix for suffix in self._suffixes if lower.endswith(suffix)), key=len, default="")
        return self._suffixes.get(found, RECORDS)

    def known(self) -> str:
        """Return the suffixes of all formats, for an error message."""
        return ", ".join(sorted(self._suffixes))

    def get(self, name: str) -> Format:
        """Return the format with this name, which must not be `RECORDS`.

        Raises:
            PluginError: the format is known, but not installed, or the plugin is broken.
            ValueError: the format is unknown.
        """
        found = self._found.get(name)
        if found is not None:
            return found
        if name not in _KNOWN:
            there = ", ".join(sorted({*self._found, *_KNOWN, RECORDS}))
            raise ArgumentValueError(f"{name!r} is not a format; the formats are {there}{self._faults()}")
        raise PluginError(f"the format {name!r} is not installed: pip install {_PACKAGES[name]}{self._faults()}")

    def _of_built_in(self, name: str) -> Format | None:
        lower = name.lower()
        return next((each for each in self._built_in if lower == each.name or lower.endswith(each.suffixes)), None)

    def _is_known(self, name: str) -> bool:
        return name == RECORDS or ".tfrec" in _base(name) or self._of_built_in(name) is not None

    def _load(self) -> None:
        with self._loading:
            if self._loaded:
                return
            self._plugins.load()
            found: list[tuple[str, Format]] = self._plugins.gather("asyncrec_formats", self._checked)
            for plugin, each in sorted(found, key=lambda pair: pair[0]):
                if each.name in self._found:
                    why = f"another plugin already has the format {each.name!r}"
                    self._plugins.note(plugin, PluginError(f"the plugin {plugin!r}: {why}"))
                    continue
                self._found[each.name] = each
                self._suffixes |= dict.fromkeys(each.suffixes, each.name)
            self._loaded = True

    def _checked(self, plugin: str, given: Any) -> Format:
        """Return ``given`` if it is a format that may be added. Raise PluginError otherwise."""
        why = _fault(given)
        if why is None and given.name in {RECORDS, *(each.name for each in self._built_in)}:
            why = f"the format {given.name!r} is built in; choose another name"
        if why is None:
            ours = {".tfrec", ".tfrecord", ".tfrecords", *(s for each in self._built_in for s in each.suffixes)}
            if claimed := ours & set(given.suffixes):
                why = f"the suffix {min(claimed)!r} is built in; choose another"
        if why is not None:
            raise PluginError(f"the plugin {plugin!r}: {why}")
        return given  # type: ignore[no-any-return]  # `_fault` has checked that it is a Format

    def _faults(self) -> str:
        said = f". {DISABLE} leaves out: {', '.join(self._plugins.disabled)}" if self._plugins.disabled else ""
        for name, error in self._plugins.broken.items():
            said += f". The plugin {name!r} cannot be used: {type(error).__name__}: {error}"
        return said


def _base(path: str) -> str:
    return path.rpartition("/")[2]


def _fault(given: Any) -> str | None:
    """Return the reason why an object is not a valid format, or `None`."""
    if not isinstance(given, Format):
        return f"{given!r} is not a Format"
    if not isinstance(given.name, str) or not _NAME.fullmatch(given.name):
        return f"the name {given.name!r}: use lower-case letters, digits and '-'"
    if isinstance(given.suffixes, str) or not all(isinstance(s, str) and _SUFFIX.fullmatch(s) for s in given.suffixes):
        return (
            f"the suffixes {given.suffixes!r}: pass a tuple of lower-case suffixes, each with its dot, such as "
            "('.csv',)"
        )
    if given.open is None and given.encoder is None:
        return f"the format {given.name!r} can neither be read nor written: pass open, encoder or both"
    return None


FORMATS = Formats()
