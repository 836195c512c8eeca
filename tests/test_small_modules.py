"""What can be held in mind at once: the length of a module, the methods and attributes of a class, the parameters.

The packages listed are held to it. What exceeds a limit, and is right to, is listed with the reason.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = (
    "asyncrec/blocking",
    "asyncrec/compat",
    "asyncrec/plugins",
    "asyncrec/storage",
    "asyncrec/testing",
    "plugins/asyncrec-aiofiles/asyncrec_aiofiles",
    "plugins/asyncrec-gcs/asyncrec_gcs",
    "plugins/asyncrec-s3/asyncrec_s3",
)
MOST_LINES = 350
MOST_METHODS = 16
MOST_ATTRIBUTES = 14
MOST_PARAMETERS = 8

EXCEPTIONS = {
    "asyncrec/compat/_tensorflow_files.py: TFRecordOptions.__init__": "TensorFlow's own signature",
    "asyncrec/compat/tfrecorder/factory.py: generate_and_save_train_eval_test_tfrecords_files": "datum's own signature",
    "asyncrec/compat/tfsimilarity.py: TFRecordDatasetSampler": "TensorFlow Similarity's own signature",
    "plugins/asyncrec-gcs/asyncrec_gcs/bucket.py: Bucket.request": "the parts of an HTTP request, each by its name",
}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def attributes_of(node: ast.ClassDef) -> set[str]:
    """Those that its methods set on ``self``."""
    return {
        each.attr
        for each in ast.walk(node)
        if isinstance(each, ast.Attribute)
        and isinstance(each.ctx, ast.Store)
        and isinstance(each.value, ast.Name)
        and each.value.id == "self"
    }


def parameters_of(function: Function) -> int:
    given = [each.arg for each in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
    return len(given) - (given[:1] in (["self"], ["cls"]))


def too_large(source: str) -> Iterator[tuple[str, str]]:
    """What is, by its name, and by how much."""
    lines = source.count("\n")
    if lines > MOST_LINES:
        yield "", f"{lines} lines"
    pending: list[tuple[str, ast.AST]] = [("", ast.parse(source))]
    while pending:
        prefix, parent = pending.pop()
        for node in ast.iter_child_nodes(parent):
            if not isinstance(node, ast.ClassDef | Function):
                pending.append((prefix, node))
                continue
            name = f"{prefix}{node.name}"
            pending.append((f"{name}.", node))
            if isinstance(node, Function):
                if (count := parameters_of(node)) > MOST_PARAMETERS:
                    yield name, f"{count} parameters"
                continue
            methods = [each for each in node.body if isinstance(each, Function)]
            if len(methods) > MOST_METHODS:
                yield name, f"{len(methods)} methods"
            if len(attributes_of(node)) > MOST_ATTRIBUTES:
                yield name, f"{len(attributes_of(node))} attributes"


FOUND = {
    f"{path.relative_to(ROOT).as_posix()}: {name}": what
    for package in PACKAGES
    for path in sorted((ROOT / package).rglob("*.py"))
    for name, what in too_large(path.read_text("utf-8"))
}


def test_nothing_outgrows_the_limits_but_what_is_listed() -> None:
    assert {name: what for name, what in FOUND.items() if name not in EXCEPTIONS} == {}


def test_every_exception_is_needed_still() -> None:
    assert sorted(set(EXCEPTIONS) - set(FOUND)) == []


@pytest.mark.parametrize(
    "source",
    [
        "\n" * (MOST_LINES + 1),
        "class A:\n" + "".join(f"    def m{n}(self): ...\n" for n in range(MOST_METHODS + 1)),
        "class A:\n    def m(self):\n" + "".join(f"        self.a{n} = 1\n" for n in range(MOST_ATTRIBUTES + 1)),
        f"async def f({', '.join(f'p{n}' for n in range(MOST_PARAMETERS + 1))}): ...",
    ],
    ids=["lines", "methods", "attributes", "parameters"],
)
def test_what_is_too_large_is_found(source: str) -> None:
    assert len(list(too_large(source))) == 1
    assert list(too_large("class A:\n    def m(self, one):\n        self.a = one\n")) == []
