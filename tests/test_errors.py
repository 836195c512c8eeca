"""All errors form one tree in one module, and their types distinguish rejected arguments from failures."""

from __future__ import annotations

import ast
import builtins
import pickle
import re

import pytest

import asyncrec
from asyncrec import errors

from .parsed import ROOT, Module, modules, parsed

REFERENCE = ROOT / "docs" / "reference" / "errors.md"
OURS = [getattr(errors, name) for name in errors.__all__]

# Exceptions that are defined elsewhere, each with the reason.
ELSEWHERE = {
    "asyncrec/example/_declared.py": {"IgnoreExample"},  # not an error: user code raises it to omit an example
    # These two never leave the package: the schema turns them into SchemaErrors.
    "asyncrec/example/_conversions.py": {"Unfit"},
    "asyncrec/example/_dtypes.py": {"Misfit"},
    # Subclasses of errors in the tree, named like another library's exceptions so that existing `except` clauses work.
    "asyncrec/compat/datum.py": {"DuplicatedKeysError"},
    "asyncrec/compat/_datum_reading.py": {"InstructionError"},
    "asyncrec/compat/tfrecorder/helpers/marshaller.py": {"FieldError"},
    "asyncrec/compat/tfrecorder/_reading.py": {"NoDirectoryError"},
    # TensorFlow's own error tree, mixed into the class of every error that leaves `asyncrec.compat.tensorflow`.
    "asyncrec/compat/_tensorflow_errors.py": {
        "AbortedError", "AlreadyExistsError", "CancelledError", "DataLossError", "DeadlineExceededError",
        "FailedPreconditionError", "InternalError", "InvalidArgumentError", "NotFoundError", "OpError",
        "OutOfRangeError", "PermissionDeniedError", "ResourceExhaustedError", "UnauthenticatedError",
        "UnavailableError", "UnimplementedError", "UnknownError",
    },
    # Exceptions used between a plugin's own modules; all except the pure signals are subclasses of errors in the tree.
    "plugins/asyncrec-formats/asyncrec_formats/http_body.py": {"TooLargeError"},
    "asyncrec/storage/_disk_cache.py": {"NotCachedError"},
    "plugins/asyncrec-azure/asyncrec_azure/errors.py": {"BlocksGoneError", "HeaderUnknownError", "NoNewTokenError"},
    "plugins/asyncrec-gcs/asyncrec_gcs/errors.py": {"SessionGoneError"},
    "plugins/asyncrec-s3/asyncrec_s3/errors.py": {"CompletingError", "InvalidPartError", "UploadGoneError"},
}  # fmt: skip

# How many builtin errors each module raises directly, with the reason.
BUILTIN = {
    "asyncrec/_shards/manifest/checkpoint_lines.py": 2,  # raised as `json` would, in cases that `json` does not check
    "asyncrec/_records/index.py": 1,  # an unreadable line; the caller names the index
    "asyncrec/compat/_live_file.py": 1,  # like Python's own `io`, a closed file raises ValueError
    "asyncrec/compat/_remote_file.py": 1,  # likewise
    "asyncrec/storage/http/_messages.py": 1,  # an unreadable header; the caller names it
    "plugins/asyncrec-azure/asyncrec_azure/container.py": 1,  # an unreadable response; the caller names it
    "plugins/asyncrec-azure/asyncrec_azure/listing.py": 3,
    "plugins/asyncrec-formats/asyncrec_formats/parquet_pages.py": 5,  # an unreadable header; the caller names the file
    "plugins/asyncrec-formats/asyncrec_formats/parquet_rows.py": 1,  # likewise
    "plugins/asyncrec-gcs/asyncrec_gcs/protocol.py": 7,  # an unreadable response; the caller names the object
    "plugins/asyncrec-report/asyncrec_report/html.py": 4,  # a bug in the report itself, not a bad argument
    "plugins/asyncrec-s3/asyncrec_s3/body.py": 1,  # required by aiohttp's payload interface
    "plugins/asyncrec-s3/asyncrec_s3/sdk.py": 1,  # an unreadable date; the SDK's parser raises the same error
}


def defined(module: Module) -> set[str]:
    """Return a module's public exceptions: classes whose base is named like an exception or is one of these classes."""
    found: set[str] = set()
    for node in module.nodes:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            bases = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
            if any(base in found or re.search("(Error|Exception|Exit)$", base) for base in bases):
                found.add(node.name)
    return found


def raised(module: Module) -> int:
    """Count how often a module raises Python's own ValueError or TypeError."""
    count = 0
    for node in module.nodes:
        if isinstance(node, ast.Raise) and node.exc is not None:
            error = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            count += isinstance(error, ast.Name) and error.id in ("ValueError", "TypeError")
    return count


def drawn(lines: list[str]) -> list[tuple[int, str, str]]:
    """Yield each line of a drawn tree as its depth, the error's name, and the builtin error in brackets."""
    matches = [re.match(r"([│├└─ ]*)(\w+)(?:\((\w+)\))?", line) for line in lines]
    return [(len(match[1]) // 3, match[2], match[3] or "") for match in matches if match]


def docstring_tree() -> list[str]:
    tree, _, _ = (errors.__doc__ or "").partition("Each error is also")
    return [line[4:] for line in tree.splitlines()[2:] if line]


def test_public_errors_are_defined_only_in_errors_module() -> None:
    found = {each.name: defined(each) for each in modules() if each.name != "asyncrec/errors.py"}
    assert {path: names for path, names in found.items() if names} == ELSEWHERE


def test_rejected_arguments_raise_argument_error() -> None:
    found = {each.name: raised(each) for each in modules()}
    assert {path: count for path, count in found.items() if count} == BUILTIN


def test_errors_module_exports_every_error_it_defines() -> None:
    assert {kind.__name__ for kind in vars(errors).values() if isinstance(kind, type)} == set(errors.__all__)


def test_every_error_is_in_reference() -> None:
    text = REFERENCE.read_text("utf-8")
    shown = {name.rpartition(".")[2] for name in re.findall(r"^::: (asyncrec\.\S+)", text, re.MULTILINE)}
    assert set(errors.__all__) - shown == set()


def test_docstring_tree_matches_error_classes() -> None:
    above: list[type] = []
    names = set()
    for depth, name, builtin in drawn(docstring_tree()):
        kind = getattr(errors, name)
        bases = [*above[depth - 1 : depth], *([getattr(builtins, builtin)] if builtin else [])]
        assert list(kind.__bases__) == bases, name
        above[depth:] = [kind]
        names.add(name)
    assert names == set(errors.__all__)


def test_reference_shows_error_tree_of_docstring() -> None:
    tree = REFERENCE.read_text("utf-8").partition("```text\nAsyncRecError")[2].partition("```")[0]
    assert f"AsyncRecError{tree}".splitlines() == docstring_tree()


@pytest.mark.parametrize("kind", OURS, ids=errors.__all__)
def test_error_round_trips_through_pickle_with_notes(kind: type[asyncrec.AsyncRecError]) -> None:
    error = kind("what happened").with_remedy("do(it=True)", command="do --it")
    error.add_note("and this")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert str(copy) == "what happened; do(it=True)"
    assert copy.in_shell == "what happened; do --it"
    assert (copy.problem, copy.remedy, copy.command) == ("what happened", "do(it=True)", "do --it")
    assert copy.__notes__ == ["and this"]


def test_remedy_without_command_serves_both_readers() -> None:
    error = errors.CorruptRecordError("a length is damaged", path="a.tfrecord", record=3).with_remedy("mend it")
    assert str(error) == error.in_shell == "a.tfrecord, record 3: a length is damaged; mend it"
    assert error.problem == "a.tfrecord, record 3: a length is damaged"


def test_remedy_without_command_is_omitted_in_shell() -> None:
    error = errors.StorageError("there is no backend").with_remedy("register one", command="")
    assert (str(error), error.in_shell) == ("there is no backend; register one", "there is no backend")


def test_error_without_remedy_shows_message_only() -> None:
    error = errors.StorageError("the disk is full")
    assert str(error) == error.in_shell == error.problem == "the disk is full"


def test_rejected_value_raises_argument_error_and_value_error() -> None:
    with pytest.raises(ValueError, match="BZIP2") as caught:
        asyncrec.CompressionOptions(type="BZIP2")  # type: ignore[arg-type]  # the mistake
    assert isinstance(caught.value, errors.ArgumentError)


def test_rejected_type_raises_argument_error_and_type_error() -> None:
    with pytest.raises(TypeError, match="several values") as caught:
        asyncrec.example.bytes_feature([b"a", b"b"])  # type: ignore[arg-type]  # the mistake
    assert isinstance(caught.value, errors.ArgumentError)
    assert not isinstance(caught.value, ValueError)


def test_raised_exceptions_are_found_in_source() -> None:
    """The helpers that the two tests above rely on find what they should."""
    module = parsed(
        "class NewError(errors.StorageError): ...\nclass Deeper(NewError): ...\nclass _Private(Exception): ...\n"
        "class Other: ...\ndef f():\n raise ValueError('x') from None\n raise TypeError\n raise RuntimeError('y')\n"
    )
    assert defined(module) == {"NewError", "Deeper"}
    assert raised(module) == 2


def test_missing_key_message_has_no_extra_quotes() -> None:
    assert str(asyncrec.errors.RecordKeyError("pages: no record has the key 'x'")) == "pages: no record has the key 'x'"
