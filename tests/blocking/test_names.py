"""The blocking API is complete: what is awaited, entered or iterated in the asynchronous one has its counterpart."""

from __future__ import annotations

import inspect

import pytest

import asyncrec
from asyncrec import blocking

# What another object gives: reached through the methods below.
GIVEN = {"ShuffledStream"}


def is_asynchronous(value: object) -> bool:
    if inspect.isclass(value):
        return hasattr(value, "__aenter__")
    return inspect.iscoroutinefunction(value) or inspect.isasyncgenfunction(inspect.unwrap(value))  # type: ignore[arg-type]  # any object may be asked


PUBLIC = [name for name in asyncrec.__all__ if callable(getattr(asyncrec, name)) and name not in GIVEN]
FUNCTIONS = [name for name in PUBLIC if is_asynchronous(getattr(asyncrec, name))]
CLASSES = [name for name in PUBLIC if inspect.isclass(getattr(asyncrec, name)) and hasattr(blocking, name)]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_awaited_or_entered_has_a_counterpart_with_its_parameters_and_docstring(name: str) -> None:
    ours, theirs = getattr(blocking, name), getattr(asyncrec, name)
    assert name in blocking.__all__
    assert not inspect.iscoroutinefunction(ours)
    assert inspect.signature(ours) == inspect.signature(theirs)
    assert ours.__doc__ == theirs.__doc__


def test_every_class_with_asynchronous_methods_has_a_counterpart() -> None:
    def has_some(kind: type) -> bool:
        methods = [value for name, value in vars(kind).items() if not name.startswith("_")]
        return any(inspect.iscoroutinefunction(method) for method in methods)

    missing = [
        name for name in PUBLIC if inspect.isclass(getattr(asyncrec, name)) and has_some(getattr(asyncrec, name))
    ]
    # A Protocol of what some backends have besides; what has it is used through `Storage.storage`.
    assert set(missing) - set(CLASSES) - {"UnfinishedUploads"} == set()


@pytest.mark.parametrize("name", CLASSES)
def test_every_public_method_has_a_counterpart(name: str) -> None:
    ours, theirs = getattr(blocking, name), getattr(asyncrec, name)
    methods = [name for name, value in vars(theirs).items() if inspect.isfunction(value) and not name.startswith("_")]
    internal = {"runs", "starts", "get_whole", "park", "next_batch", "aclose", "before_publish", "published_object",
                "progressed", "open_object", "hold_at_most", "forked"}  # fmt: skip
    assert [method for method in methods if method not in internal and not hasattr(ours, method)] == []
