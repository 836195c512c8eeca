"""The options of a storage, as a caller gave them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from asyncrec.errors import ArgumentTypeError, ArgumentValueError

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def check_options(store: str, given: Mapping[str, Any], types: Mapping[str, Any]) -> None:
    """Check the names and the types of a storage's options, and that each text can be sent to a store.

    Values are never part of a message: they may be credentials.

    Args:
        store: its name, for messages.
        types: of each option that there is, as `isinstance` takes it: ``str | None``.

    Raises:
        TypeError: there is no such option, or it has another type.
        ValueError: a text holds a control character, such as the newline at the end of a file that it was read from.
    """
    if unknown := sorted(set(given) - set(types)):
        raise ArgumentTypeError(f"{store} has no option {', '.join(unknown)}; it has {', '.join(sorted(types))}")
    for name, value in given.items():
        if not isinstance(value, types[name]):
            wanted = getattr(types[name], "__name__", None) or str(types[name])
            raise ArgumentTypeError(f"the option {name} of {store} takes {wanted}, not {type(value).__name__}")
        if isinstance(value, str) and _CONTROL.search(value):
            raise ArgumentValueError(
                f"the option {name} of {store} holds a control character: does it end with the newline of a file?"
            )
