"""The blocking API is complete: everything awaited, entered or iterated in the asynchronous API has a counterpart."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import asyncrec
import asyncrec.datasets
import asyncrec.storage
from asyncrec import blocking
from asyncrec._sampling.interleave.stream import InterleaveStream
from asyncrec.blocking._portal import current_portal
from asyncrec.storage._files import FileWriter

# Objects that are only returned by methods; the tests below cover them.
GIVEN = {"ShuffledStream"}


def is_asynchronous(value: object) -> bool:
    if inspect.isclass(value):
        return hasattr(value, "__aenter__")
    return inspect.iscoroutinefunction(value) or inspect.isasyncgenfunction(inspect.unwrap(value))  # type: ignore[arg-type]  # any object may be asked


PUBLIC = [name for name in asyncrec.__all__ if callable(getattr(asyncrec, name)) and name not in GIVEN]
FUNCTIONS = [name for name in PUBLIC if is_asynchronous(getattr(asyncrec, name))]
CLASSES = [name for name in PUBLIC if inspect.isclass(getattr(asyncrec, name)) and hasattr(blocking, name)]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_blocking_function_matches_async_signature_and_docstring(name: str) -> None:
    ours, theirs = getattr(blocking, name), getattr(asyncrec, name)
    assert name in blocking.__all__
    assert not inspect.iscoroutinefunction(ours)
    assert inspect.signature(ours) == inspect.signature(theirs)
    assert ours.__doc__ == theirs.__doc__


def test_every_class_with_async_methods_has_blocking_counterpart() -> None:
    def has_some(kind: type) -> bool:
        methods = [value for name, value in vars(kind).items() if not name.startswith("_")]
        return any(inspect.iscoroutinefunction(method) for method in methods)

    missing = [
        name for name in PUBLIC if inspect.isclass(getattr(asyncrec, name)) and has_some(getattr(asyncrec, name))
    ]
    # A Protocol for additional methods of some backends, which are used through `Storage.storage`.
    assert set(missing) - set(CLASSES) - {"UnfinishedUploads"} == set()


def test_blocking_storage_mirrors_attributes_of_storage() -> None:
    named = inspect.get_annotations(asyncrec.storage.Storage)
    assert {"root", "read_ahead", "lists_by_pages"} <= set(named)
    with blocking.open_storage("memory://") as storage:
        for name in named:
            assert getattr(storage, name) == getattr(storage.storage, name)


# A blocking class corresponds to the asynchronous class with the same name, but a `Stream` to every kind of stream.
OTHERS = {
    "FileWriter": [FileWriter],
    "Stream": [InterleaveStream, asyncrec.ShuffledStream, asyncrec.InterleaveSampler, asyncrec.ClassBalancedSampler],
}
CLASSES_HERE = [name for name in blocking.__all__ if inspect.isclass(getattr(blocking, name))]


def counterparts(name: str) -> list[type]:
    modules = (asyncrec, asyncrec.datasets, asyncrec.storage)
    return OTHERS.get(name) or [next(getattr(module, name) for module in modules if name in module.__all__)]


PAIRS = [
    pytest.param(getattr(blocking, name), theirs, id=f"{name}-{theirs.__name__}")
    for name in CLASSES_HERE
    for theirs in counterparts(name)
]


# Methods for use by asyncrec itself, or that return asynchronous objects.
INTERNAL = {
    *("runs", "starts", "with_versions", "get_whole", "park", "next_batch", "aclose", "before_publish"),
    *("published_object", "progressed", "open_object", "hold_at_most", "forked", "buffered", "read_ahead"),
    *("chosen", "numbered_history", "state_before", "keep_snapshots"),
}


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
def test_every_public_method_has_counterpart_with_same_parameters(ours: type, theirs: type) -> None:
    def parameters(method: Callable[..., Any]) -> list[tuple[Any, ...]]:
        return [(each.name, each.kind, each.default) for each in inspect.signature(method).parameters.values()]

    methods = [name for name, _ in inspect.getmembers(theirs, inspect.isfunction) if not name.startswith("_")]
    different = [
        name
        for name in methods
        if name not in INTERNAL
        and (not hasattr(ours, name) or parameters(getattr(ours, name)) != parameters(getattr(theirs, name)))
    ]
    assert different == []


def records(path: Path) -> str:
    with blocking.open_sharded_writer(str(path), max_shard_records=4) as writer:
        for number in range(10):
            writer.write(asyncrec.encode_example({"label": number % 2, "n": number}))
    return str(path)


def attributes(kind: type) -> set[str]:
    """Return a class's public attributes: its properties, and the attributes that its __init__ sets."""
    source = textwrap.dedent(inspect.getsource(kind))
    own = {name for name, value in vars(kind).items() if isinstance(value, property) and not name.startswith("_")}
    return own | set(re.findall(r"^ {8}self\.([a-z]\w*)(?:: [^=]+)? =", source, re.MULTILINE))


# Attributes for use by asyncrec itself, or whose values are asynchronous objects.
OF_ASYNC = {
    "Dataset": {
        "files",
        "folder",
        "name",
        "cache",
        "starts",
        "lookup",
        "keys",
        "versions",
        "newest",
        "newest_versions",
    },
    "DatasetWriter": set(),
    "RecordReader": set(),
    "RecordWriter": set(),
    "ShardedWriter": {"url"},
}


@pytest.mark.parametrize("name", sorted(OF_ASYNC))
def test_every_public_attribute_has_blocking_counterpart(name: str) -> None:
    ours, theirs = getattr(blocking, name), getattr(asyncrec, name)
    assert {each for each in attributes(theirs) if not hasattr(ours, each)} - OF_ASYNC[name] == set()


def test_sampler_lists_its_classes(tmp_path: Path) -> None:
    with blocking.open_dataset(records(tmp_path / "set")) as dataset:
        with blocking.ClassBalancedSampler(dataset, 2, 1, class_feature="label") as sampler:
            assert sampler.classes == (0, 1)
        with dataset.shuffled(seed=1) as stream:
            assert not hasattr(stream, "classes")


def test_data_set_supports_indexing_and_slicing(tmp_path: Path) -> None:
    with blocking.open_dataset(records(tmp_path / "set")) as dataset:
        every = list(dataset)
        assert len(dataset) == len(every) == 10
        assert dataset[2:5] == every[2:5]
        assert dataset[::-3] == every[::-3]
        assert dataset[100:] == []
        assert dataset[-1] == every[-1]


@pytest.mark.parametrize(
    "opened",
    [
        lambda: blocking.open_dataset("x"), lambda: blocking.open_reader("x"), lambda: blocking.open_writer("x"),
        lambda: blocking.open_sharded_writer("x"), lambda: blocking.interleave(["x"]),
    ],
)  # fmt: skip
def test_unentered_handle_advises_with_statement(opened: Callable[[], Any]) -> None:
    with pytest.raises(AttributeError, match=r"opened in a with statement: with \w+\(\.\.\.\) as it: it\.get"):
        _ = opened().get
    with pytest.raises(TypeError, match=r"opened in a with statement: with \w+\(\.\.\.\) as it: it\[0\]"):
        _ = opened()[0]
    with pytest.raises(TypeError, match="opened in a with statement"):
        iter(opened())


def test_sampler_error_for_path_names_expected_dataset(tmp_path: Path) -> None:
    with pytest.raises(
        TypeError, match=r"ClassBalancedSampler takes a Dataset from asyncrec\.blocking\.open_dataset, not str"
    ):
        blocking.ClassBalancedSampler(str(tmp_path), 1, 1, class_feature="label")  # type: ignore[arg-type]  # wrong
    with pytest.raises(TypeError, match=r"takes a Dataset, which asyncrec\.open_dataset returns, not str"):
        asyncrec.ClassBalancedSampler(str(tmp_path), 1, 1, class_feature="label")  # type: ignore[arg-type]  # wrong


def test_generator_closed_on_loop_thread_releases_reader(tmp_path: Path) -> None:
    path = str(tmp_path / "x.tfrecord")
    blocking.write_records(path, [b"x"] * 10)

    def generate() -> Iterator[bytes]:
        with blocking.open_reader(path) as reader:
            yield from reader

    generator = generate()
    assert next(generator) == b"x"
    portal = current_portal()
    portal.portal.call(generator.close)  # like the garbage collector
    assert list(blocking.read_records(path)) == [b"x"] * 10
