"""The kits for commands and formats accept a correct plugin and detect each of many broken ones."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import asyncrec
from asyncrec.cli import Debug, Json
from asyncrec.cli import Path as PathArgument
from asyncrec.errors import SchemaError
from asyncrec.plugins import BadMember, Command, Converted, Format, SourceFile, hookimpl
from asyncrec.storage import in_thread
from asyncrec.testing import CommandConformance, FormatConformance, replaces_case

pytestmark = pytest.mark.anyio


def given(monkeypatch: pytest.MonkeyPatch, **names: Any) -> None:
    """Pretend that a plugin ``toy`` with these names is installed."""
    module = ModuleType("toy")
    vars(module).update(names)
    monkeypatch.setitem(sys.modules, "toy", module)


# Commands -------------------------------------------------------------------------------------------------------------


def count(path: PathArgument, json: Json = False, debug: Debug = False) -> int:
    """Count the records."""
    from asyncrec import tools
    from asyncrec.cli import print_json, run_async, say

    report = run_async(lambda: tools.count(path))
    if json:
        print_json({"records": report.records})
    else:
        say(f"{report.records} records")
    return 0


def raw(path: PathArgument, json: Json = False, debug: Debug = False) -> int:
    """Print the argument."""
    print(f"{path}: \x1b[31mred")
    return count(path)


def careless(path: PathArgument, json: Json = False, debug: Debug = False) -> int:
    """Count the records, or nothing."""
    return 0


def python_like(path: PathArgument, json: Json = False, debug: Debug = False) -> int:
    """Count the records."""
    print({"path": path})
    return count(path, json=False)


def without_debug(path: PathArgument, json: Json = False) -> int:
    """Count the records."""
    return count(path, json=json)


def undocumented(path: PathArgument, json: Json = False, debug: Debug = False) -> int:
    return count(path, json=json)


def failing(path: PathArgument, json: Json = False, debug: Debug = False) -> int:
    """Count the records."""
    raise RuntimeError(path)


class ToyCommand(CommandConformance):
    __test__ = False
    plugin = "toy"
    name = "tally"


def cases(kit: type, without: tuple[str, ...] = ()) -> list[str]:
    outside = ("test_entry_point", "test_cheap_import")  # these need an installed distribution
    return [name for name in dir(kit) if name.startswith("test_") and name not in (*outside, *without)]


@pytest.fixture
def tally(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., list[str]]:
    """Return a function that lists the kit's cases that a command fails."""

    def tally(function: Callable[..., int], command: object = None) -> list[str]:
        command = command or Command("tally", "how many records", "toy:function")
        given(monkeypatch, function=function, asyncrec_commands=hookimpl(lambda: [command]))
        failed = []
        for number, name in enumerate(cases(ToyCommand)):
            folder = tmp_path / str(number)
            folder.mkdir()
            kit = ToyCommand()
            with monkeypatch.context() as patch:
                type(kit)._set_up.__wrapped__(kit, folder, patch, capsys)  # type: ignore[attr-defined]  # the fixture
                try:
                    getattr(kit, name)()
                except Exception:
                    failed.append(name)
        return failed

    return tally


def test_correct_command_passes(tally: Callable[..., list[str]]) -> None:
    assert tally(count) == []


@pytest.mark.parametrize(
    ("function", "case"),
    [
        (raw, "test_control_characters_escaped"),
        (careless, "test_missing_path"),
        (python_like, "test_json_output"),
        (without_debug, "test_debug_flag"),
        (undocumented, "test_own_help"),
        (failing, "test_successful_run"),
    ],
)
def test_incorrect_command_is_detected(tally: Callable[..., list[str]], function: Any, case: str) -> None:
    assert case in tally(function)


@pytest.mark.parametrize(
    "command", [Command("verify", "words", "toy:function"), Command("tally", "words", "toy:nothing"), "tally"]
)
def test_unusable_command_is_detected(tally: Callable[..., list[str]], command: object) -> None:
    assert "test_registration" in tally(count, command)


# Formats --------------------------------------------------------------------------------------------------------------


class Right:
    """A format with records of fixed length. Mutants override ``open`` and the encoder."""

    def parse(self, path: str, line: bytes, limit: int) -> bytes | BadMember:
        try:
            record = encode(int(line))
        except (ValueError, asyncrec.errors.ExampleError) as error:
            return BadMember(path, "a line", str(error))
        return record if len(record) <= limit else BadMember(path, "a line", "too long")

    @asynccontextmanager
    async def open(self, file: SourceFile) -> AsyncIterator[AsyncIterator[Converted]]:
        async with aclosing(self.read(file)) as reading:
            yield reading

    async def read(self, file: SourceFile) -> AsyncIterator[Converted]:
        data = b""
        while block := await file.receive(100):
            data += block
        found = Converted()
        for line in data.splitlines():
            each = await in_thread(self.parse, file.path, line, file.max_record_bytes)
            (found.bad if isinstance(each, BadMember) else found.records).append(each)  # type: ignore[arg-type]  # so
        yield found

    def encode(self, records: Any) -> bytes:
        if any(asyncrec.decode_sequence_example(record)[1] for record in records):
            raise SchemaError("a record has feature lists")
        return self.encode_numbers(records)

    def encode_numbers(self, records: Any) -> bytes:
        return b"".join(b"%d\n" % asyncrec.decode_example(record)["n"][0] for record in records)

    def finish(self) -> bytes:
        return b""


def encode(number: int) -> bytes:
    return asyncrec.encode_example({"n": number})


class Raises(Right):
    def parse(self, path: str, line: bytes, limit: int) -> bytes | BadMember:
        return encode(int(line))


class OneBlock(Right):
    @asynccontextmanager
    async def open(self, file: SourceFile) -> AsyncIterator[AsyncIterator[Converted]]:
        content = await file.receive(1 << 20)

        class Once:
            path, max_record_bytes = file.path, file.max_record_bytes
            given = False

            async def receive(self, max_bytes: int) -> bytes:
                block, self.given = (b"" if self.given else content), True
                return block

        async with aclosing(self.read(Once())) as reading:  # type: ignore[arg-type]  # as much as is asked for
            yield reading


class NoPath(Right):
    def parse(self, path: str, line: bytes, limit: int) -> bytes | BadMember:
        return super().parse("", line, limit)


class NoLimit(Right):
    def parse(self, path: str, line: bytes, limit: int) -> bytes | BadMember:
        return super().parse(path, line, 1 << 30)


class Forgets(Right):
    def encode(self, records: Any) -> bytes:
        return super().encode(records[:1])


class LeavesOut(Right):
    def encode(self, records: Any) -> bytes:
        return self.encode_numbers(records)


class Keeps(Right):
    @asynccontextmanager
    async def open(self, file: SourceFile) -> AsyncIterator[AsyncIterator[Converted]]:
        await file.local_copy().__aenter__()
        async with super().open(file) as reading:
            yield reading


class ToyFormat(FormatConformance):
    __test__ = False
    plugin = "toy"
    name = "numbers"

    def records(self) -> list[bytes]:
        return [encode(n) for n in (1, 10**6, 3)]

    def content(self) -> bytes:
        return b"1\n1000000\n3\n"


async def not_passed(format_: Right, monkeypatch: pytest.MonkeyPatch, folder: Path) -> list[str]:
    one = Format(name="numbers", suffixes=(".num",), open=format_.open, encoder=lambda name, schema: format_)
    given(monkeypatch, asyncrec_formats=hookimpl(lambda: [one]))
    failed = []
    for name in cases(ToyFormat):
        kit = ToyFormat()
        kit._folder = folder
        try:
            await getattr(kit, name)()
        except Exception:
            failed.append(name)
    return failed


async def test_correct_format_passes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert await not_passed(Right(), monkeypatch, tmp_path) == []


@pytest.mark.parametrize(
    ("mutant", "case"),
    [
        (Raises, "test_damaged_file"),
        (OneBlock, "test_reads_in_any_chunks"),
        (NoPath, "test_damaged_file"),
        (NoLimit, "test_record_too_large"),
        (Forgets, "test_round_trip"),
        (LeavesOut, "test_feature_lists"),
        (Keeps, "test_early_exit_and_cancellation"),
    ],
)
async def test_incorrect_format_is_detected(
    mutant: type[Right], case: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert case in await not_passed(mutant(), monkeypatch, tmp_path)


def test_kit_case_can_be_replaced_only_with_reason() -> None:
    with pytest.raises(TypeError, match="overrides a case of the kit"):
        type("Silent", (ToyFormat,), {"test_registration": lambda self: None})
    type("Said", (ToyFormat,), {"test_registration": replaces_case("it is a toy")(lambda self: None)})
    with pytest.raises(TypeError, match="the kit has no case with this name"):
        type("Wrong", (ToyFormat,), {"test_it_flies": replaces_case("it is a toy")(lambda self: None)})
