"""`number_refused` says in a few words why a number on the command line is none, or cannot be.

Options that are numbers are read by pydantic, for typer; its error says what kind of mistake it is, and of what.
"""

from __future__ import annotations

from typing import Any

# Of what was typed, so much is shown.
_SHOWN = 40


def number_refused(error: BaseException | None) -> str | None:
    """Say what is wrong; `None` where it is not about a number, or there is no such error."""
    listed = getattr(error, "errors", None)
    if listed is None:
        return None
    (mistake, *_) = listed(include_url=False)
    limits: dict[str, Any] = mistake.get("ctx", {})
    given = str(mistake["input"])
    match mistake["type"]:
        case "int_parsing_size":
            return f"{given[:3]}... is too long for a number"
        case "int_parsing" | "int_from_float" | "int_type":
            return f"{given[:_SHOWN]!r} is no whole number"
        case _ if given.strip().lower().lstrip("+-") == "nan":
            return f"{given!r} is no number"
        case "float_parsing" | "float_type":
            return f"{given[:_SHOWN]!r} is no number"
        case "greater_than_equal":
            return f"{given[:_SHOWN]} is too small, it is {limits['ge']:g} or more"
        case "less_than_equal":
            return f"{given[:_SHOWN]} is too large, it is {limits['le']:g} or less"
    return None
