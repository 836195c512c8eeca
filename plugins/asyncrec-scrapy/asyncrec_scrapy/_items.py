"""`ItemsPipeline`: a pipeline that stores each item as an Example, whatever the item's values.

value                                    stored as
text, bytes, a number, a bool            itself
None, an empty list                      no feature
a date, a time, a Decimal, a UUID, ...   its text; dates and times in ISO 8601
a mapping, an item within an item        separate features: outer/inner
a list of such values of one kind        a feature of many values
any other list, a number too large       JSON
a value that JSON cannot represent       its text or repr, within the JSON
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date, datetime, time
from typing import Any

from itemadapter import ItemAdapter
from scrapy.exceptions import NotConfigured

import asyncrec

from ._store import store_of

_DEEPEST = 20


class ItemsPipeline:
    """A Scrapy pipeline for ``ITEM_PIPELINES``. See `Addon` for its settings."""

    def __init__(self, crawler: Any) -> None:
        if not crawler.settings.get("ASYNCREC_ITEMS"):
            raise NotConfigured("ASYNCREC_ITEMS is not set; set it to the path of a data set")
        self._store = store_of(crawler)
        self._key = crawler.settings.get("ASYNCREC_ITEM_KEY")

    @classmethod
    def from_crawler(cls, crawler: Any) -> ItemsPipeline:
        return cls(crawler)

    async def process_item(self, item: Any, spider: Any = None) -> Any:
        features = features_of(item)
        key = features.get(self._key) if self._key is not None else None
        if self._key is not None and key is None:
            self._store.count("items/without_key")
        await self._store.write(
            "items",
            asyncrec.encode_example(features),
            key if key is None or isinstance(key, str | bytes) else json.dumps(key, default=repr),
        )
        return item


def features_of(item: Any) -> dict[str, Any]:
    """Return the features of an item of any type that Scrapy accepts: a dict, Item, dataclass or attrs instance."""
    fields = item if isinstance(item, Mapping) else ItemAdapter(item)
    features: dict[str, Any] = {}
    for name, value in fields.items():
        _put(features, str(name), value, 0)
    return features


def _put(features: dict[str, Any], name: str, value: Any, depth: int) -> None:
    if _is_plain(value):  # checked first, because most values are plain and ItemAdapter.is_item is slow
        if value is not None:
            _add(features, name, value)
        return
    if depth < _DEEPEST and (isinstance(value, Mapping) or ItemAdapter.is_item(value)):
        for inner, each in (value if isinstance(value, Mapping) else ItemAdapter(value)).items():
            _put(features, f"{name}/{inner}", each, depth + 1)
        return
    made = _value(value)
    if made is not None:
        _add(features, name, made)


def _is_plain(value: Any) -> bool:
    """Return whether a value is None, or can be stored unchanged."""
    kind = type(value)
    if kind is str:
        return bool(value.isascii())
    return value is None or kind is bytes or kind is bool or (kind is int and -(1 << 63) <= value < 1 << 63)


def _add(features: dict[str, Any], name: str, made: Any) -> None:
    while name in features:  # keep both values of {"a": {"b": 1}, "a/b": 2}
        name += "_"
    features[name] = made


def _value(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, set | frozenset):
        value = sorted(value, key=repr)
    if isinstance(value, list | tuple):
        if not value:
            return None
        if any(
            isinstance(each, list | tuple | set | Mapping | type(None)) or ItemAdapter.is_item(each) for each in value
        ):
            return _json(value)
        value = [_plain(each) for each in value]
    else:
        value = _plain(value)
    try:
        asyncrec.encode_example({"": value})
    except Exception:
        return _json(value)
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        # Characters that UTF-8 cannot encode are stored as escapes.
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    try:
        asyncrec.encode_example({"": value})
    except Exception:
        return value if isinstance(value, int | float) else str(value)
    return value


def _json(value: Any) -> str:
    try:
        text = json.dumps(value, default=_shown)
    except (TypeError, ValueError, RecursionError):  # keys that are not text, or a list that contains itself
        text = json.dumps(repr(value))
    return text.encode("utf-8", "backslashreplace").decode()


def _shown(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, set | frozenset):
        return sorted(value, key=repr)
    if ItemAdapter.is_item(value):
        return dict(ItemAdapter(value))
    return _plain(value) if isinstance(value, datetime | date | time) else str(value)
