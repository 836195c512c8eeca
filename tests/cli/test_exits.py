"""The exit code for an error depends only on its type."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from asyncrec import errors
from asyncrec.cli._exits import DAMAGE, FAULT, NO_KEY, STORAGE, USAGE, explained


def made(error: Exception) -> Exception:
    """Raise and catch the error, so that it has a traceback."""
    try:
        raise error
    except Exception as caught:
        return caught


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.CorruptRecordError("x"), DAMAGE),
        (errors.DecodeError("x"), DAMAGE),
        (errors.ManifestError("x"), DAMAGE),
        (errors.IntegrityError("x"), DAMAGE),
        (errors.ObjectNotFoundError("x"), STORAGE),
        (OSError("x"), STORAGE),
        (errors.ArgumentValueError("x"), USAGE),
        (errors.ArgumentTypeError("x"), USAGE),
        (errors.RecordIndexError("x"), USAGE),
        (errors.RecordKeyError("x"), NO_KEY),
        (errors.UsageError("x"), USAGE),
        (errors.ObjectTooLargeError("x"), USAGE),
        (errors.UnknownSchemeError("x"), USAGE),
        (ImportError("x"), USAGE),
        (ValueError("x"), FAULT),
        (TypeError("x"), FAULT),
        (KeyError("x"), FAULT),
        (IndexError("x"), FAULT),
        (RuntimeError("x"), FAULT),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_exit_code_follows_error_type(error: Exception, code: int) -> None:
    assert explained(error)[0] == code
    assert explained(made(error))[0] == code
    assert explained(ExceptionGroup("of a task group", [error]))[0] == code


def test_internal_error_shows_type_and_asks_for_report() -> None:
    assert explained(ValueError("x"))[1] == [
        "ValueError: x",
        "this is a bug in asyncrec; please report it, with the output of --debug",
    ]


def code_of(module: str) -> Any:
    """Return a function that calls its argument and appears to be from a module with this name."""
    names: dict[str, Any] = {"__name__": module}
    exec("def call(function): return function()", names)
    return names["call"]


def fail() -> None:
    raise TypeError("no number")


@pytest.mark.parametrize(
    ("modules", "said"),
    [
        (
            ["asyncrec.cli._app", "asyncrec_toy.storage"],
            "this is a bug in the plugin asyncrec-toy 1.2; please report it",
        ),
        (
            ["asyncrec.cli._app", "asyncrec_toy", "aiohttp"],
            "this is a bug in the plugin asyncrec-toy 1.2; please report",
        ),
        (
            ["asyncrec_toy", "asyncrec.storage.http._parts"],
            "this is a bug in asyncrec, or in the plugin asyncrec-toy 1.2",
        ),
        (["asyncrec.cli._app", "aiohttp"], "this is a bug in asyncrec; please report it"),
        (["asyncrec_toys"], "this is a bug in asyncrec; please report it"),
    ],
)
def test_internal_error_names_involved_plugin(monkeypatch: pytest.MonkeyPatch, modules: list[str], said: str) -> None:
    entry = SimpleNamespace(
        name="toy",
        module="asyncrec_toy",
        value="asyncrec_toy",
        dist=SimpleNamespace(name="asyncrec-toy", version="1.2"),
    )
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [entry])
    function: Any = fail
    for module in reversed(modules):
        function = partial(code_of(module), function)
    with pytest.raises(TypeError) as raised:
        function()
    code, lines = explained(raised.value)
    assert code == FAULT
    assert lines[0] == "TypeError: no number"
    assert lines[1].startswith(said)


def test_missing_key_message_is_shown_verbatim() -> None:
    assert explained(errors.RecordKeyError("no record with it"))[1] == ["no record with it"]


def test_library_remedy_is_shown_as_command() -> None:
    error = errors.ObjectExistsError("p: it is there").with_remedy("mode='replace' replaces it", command="rename it")
    assert explained(error)[1] == ["p: it is there; rename it"]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("num_shards=3 cannot be combined", "--num-shards 3 cannot be combined"),
        ("max_shard_bytes or max_shard_records", "--max-shard-bytes or --max-shard-records"),
        ("min_age= says what is old", "--older-than says what is old"),
        ("the store's storage_options are wrong", "the store's --storage-option are wrong"),
        ("compression='BZIP2': no", "--compression 'BZIP2': no"),
        ("its compression is unknown; jobs=2", "its compression is unknown; --jobs 2"),
        ("on_corrupt='skip' and my_num_shards=3", "on_corrupt='skip' and my_num_shards=3"),
    ],
)
def test_parameters_in_messages_become_options(said: str, told: str) -> None:
    assert explained(errors.ArgumentValueError(said))[1] == [told]
