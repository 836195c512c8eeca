"""Imports everything that a crawl imports: what Scrapy's settings name, its commands, the add-on and its writers.

None of these imports installs Twisted's reactor, which each crawl does itself.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import scrapy.cmdline
import scrapy.commands
from scrapy.settings import default_settings


def _named(value: Any) -> Iterator[str]:
    """Yield the classes and functions that a setting names."""
    if isinstance(value, Mapping):
        for each in (*value.keys(), *value.values()):
            yield from _named(each)
    elif isinstance(value, str) and value.startswith("scrapy."):
        yield value


_NAMES = [
    *(name.rpartition(".")[0] for setting in vars(default_settings).values() for name in _named(setting)),
    *(f"scrapy.commands.{each.name}" for each in iter_modules(scrapy.commands.__path__)),
    "twisted.internet.asyncioreactor",
    "twisted.web.client",
    "asyncrec_scrapy",
    "asyncrec.pages._responses",
    "asyncrec._shards.recovery.recover",
    "asyncrec._shards.writing.open",
    "anyio._backends._asyncio",
]

# In older versions of Scrapy, these import the reactor.
_NAMES = [name for name in _NAMES if name not in ("scrapy.core.downloader.handlers.ftp", "scrapy.extensions.telnet")]

for _name in dict.fromkeys(_NAMES):
    with suppress(ImportError):  # its dependency is not installed, as for HTTP/2
        import_module(_name)

assert "twisted.internet.reactor" not in sys.modules
