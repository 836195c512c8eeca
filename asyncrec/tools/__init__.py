"""What the command line does, as functions: ``report = await asyncrec.tools.verify("s3://crawl/pages")``.

Each takes a path (a file, a folder, a pattern, or a data set) with ``storage=`` or ``storage_options=``, and returns a
report, a dataclass with ``to_json()``. Names are resolved on first use (PEP 562): one tool does not load the others.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asyncrec.tools.checkup import DoctorReport as DoctorReport
    from asyncrec.tools.checkup import doctor as doctor
    from asyncrec.tools.converting import ConvertReport as ConvertReport
    from asyncrec.tools.converting import convert as convert
    from asyncrec.tools.copying import CopyReport as CopyReport
    from asyncrec.tools.copying import copy as copy
    from asyncrec.tools.counting import CountReport as CountReport
    from asyncrec.tools.counting import count as count
    from asyncrec.tools.demonstration import DemoReport as DemoReport
    from asyncrec.tools.demonstration import demo as demo
    from asyncrec.tools.describing import InfoReport as InfoReport
    from asyncrec.tools.describing import info as info
    from asyncrec.tools.indexing import IndexReport as IndexReport
    from asyncrec.tools.indexing import index as index
    from asyncrec.tools.records import FoundRecord as FoundRecord
    from asyncrec.tools.records import RecordStream as RecordStream
    from asyncrec.tools.records import Where as Where
    from asyncrec.tools.records import get_record as get_record
    from asyncrec.tools.records import open_records as open_records
    from asyncrec.tools.repairing import RepairReport as RepairReport
    from asyncrec.tools.repairing import repair as repair
    from asyncrec.tools.report import PageReport as PageReport
    from asyncrec.tools.report import report as report
    from asyncrec.tools.resharding import ReshardReport as ReshardReport
    from asyncrec.tools.resharding import reshard as reshard
    from asyncrec.tools.schemas import SchemaReport as SchemaReport
    from asyncrec.tools.schemas import schema as schema
    from asyncrec.tools.splitting import SplitsReport as SplitsReport
    from asyncrec.tools.splitting import from_csv as from_csv
    from asyncrec.tools.splitting import from_folder as from_folder
    from asyncrec.tools.unfinished import UploadsReport as UploadsReport
    from asyncrec.tools.unfinished import uploads as uploads
    from asyncrec.tools.verifying import VerifyReport as VerifyReport
    from asyncrec.tools.verifying import verify as verify

_HOMES = {
    "asyncrec.tools.checkup": ("DoctorReport", "doctor"),
    "asyncrec.tools.converting": ("ConvertReport", "convert"),
    "asyncrec.tools.copying": ("CopyReport", "copy"),
    "asyncrec.tools.counting": ("CountReport", "count"),
    "asyncrec.tools.demonstration": ("DemoReport", "demo"),
    "asyncrec.tools.describing": ("InfoReport", "info"),
    "asyncrec.tools.indexing": ("IndexReport", "index"),
    "asyncrec.tools.records": ("FoundRecord", "RecordStream", "Where", "get_record", "open_records"),
    "asyncrec.tools.repairing": ("RepairReport", "repair"),
    "asyncrec.tools.report": ("PageReport", "report"),
    "asyncrec.tools.resharding": ("ReshardReport", "reshard"),
    "asyncrec.tools.schemas": ("SchemaReport", "schema"),
    "asyncrec.tools.splitting": ("SplitsReport", "from_csv", "from_folder"),
    "asyncrec.tools.unfinished": ("UploadsReport", "uploads"),
    "asyncrec.tools.verifying": ("VerifyReport", "verify"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    module = _HOME.get(name)
    if module is None:
        raise AttributeError(f"module 'asyncrec.tools' has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})


class _Tools(ModuleType):
    """Where a function is named as its module is, the function stays, whoever imports the module."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (isinstance(value, ModuleType) and name in _HOME):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Tools
