"""Parse Spark's options, which are text."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from asyncrec._arguments import byte_count
from asyncrec.errors import ArgumentValueError
from asyncrec.example._schema import Schema


def _count(text: str, name: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ArgumentValueError(f"option {name}={text!r}: must be a number")
    return int(text)


def _flag(text: str, name: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ArgumentValueError(f"option {name}={text!r}: must be true or false")
    return text.lower() == "true"


def _object(text: str, name: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        # Not the text itself: there may be credentials in it.
        raise ArgumentValueError(f"option {name}: must be a JSON object, such as json.dumps(a_dict)")
    return found


def _schema(text: str, name: str) -> Schema:
    return Schema.from_json(_object(text, name))


def _names(text: str, name: str) -> list[str]:
    return [each.strip() for each in text.split(",")]


def _text(text: str, name: str) -> str:
    return text


_BOTH: dict[str, Callable[[str, str], Any]] = {"path": _text, "schema": _schema, "storage_options": _object}
_READING = _BOTH | {
    "split": _text,
    "columns": _names,
    "newest": _text,
    "part_bytes": byte_count,
    "max_partitions": _count,
    "batch_rows": _count,
    "batch_bytes": byte_count,
    "verify": _flag,
}
_WRITING = _BOTH | {
    "job_id": _text,
    "if_exists": _text,
    "max_shard_bytes": byte_count,
    "max_shard_records": _count,
    "compression": _text,
    "index": _flag,
    "narrow": _flag,
    "metadata": _object,
}


def reading_options(options: Mapping[str, str]) -> dict[str, Any]:
    """Return the options of a reader, parsed.

    Raises:
        ValueError: an option is unknown, missing or malformed.
    """
    return _parsed(options, _READING, "load")


def writing_options(options: Mapping[str, str]) -> dict[str, Any]:
    """Return the options of a writer, parsed; raise as `reading_options`."""
    return _parsed(options, _WRITING, "save")


def _parsed(options: Mapping[str, str], known: dict[str, Callable[[str, str], Any]], method: str) -> dict[str, Any]:
    given = {name.lower(): text for name, text in options.items()}
    if unknown := sorted(given.keys() - known.keys()):
        raise ArgumentValueError(f"there is no option {unknown[0]!r} here; the options are {', '.join(sorted(known))}")
    if "path" not in given:
        raise ArgumentValueError(f"the path is missing; pass one path to {method}()")
    return {name: known[name](text, name) for name, text in given.items()}
