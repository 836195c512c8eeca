"""What the command line does, as functions: ``report = await asyncrec.tools.verify("s3://crawl/pages")``.

Each takes a path (a file, a folder, a pattern, or a data set) with ``storage=`` or ``storage_options=``, and returns a
report, a dataclass with ``to_json()``. A tool of your own begins with `selected`, which finds what a path names, and
reads that with `open_shard`: so does the plugin asyncrec-report.

Names are resolved on first use (PEP 562): one tool does not load the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncrec._lazy import lazy

if TYPE_CHECKING:
    from asyncrec.tools.checkup import DoctorReport as DoctorReport
    from asyncrec.tools.checkup import doctor as doctor
    from asyncrec.tools.converting import ConvertReport as ConvertReport
    from asyncrec.tools.converting import convert as convert
    from asyncrec.tools.copying import CopyReport as CopyReport
    from asyncrec.tools.copying import copy as copy
    from asyncrec.tools.counting import CountReport as CountReport
    from asyncrec.tools.counting import count as count
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
    from asyncrec.tools.resharding import ReshardReport as ReshardReport
    from asyncrec.tools.resharding import reshard as reshard
    from asyncrec.tools.schemas import SchemaReport as SchemaReport
    from asyncrec.tools.schemas import schema as schema
    from asyncrec.tools.selecting import SelectedDataset as SelectedDataset
    from asyncrec.tools.selecting import SelectedShard as SelectedShard
    from asyncrec.tools.selecting import Selection as Selection
    from asyncrec.tools.selecting import selected as selected
    from asyncrec.tools.shard_reading import open_shard as open_shard
    from asyncrec.tools.shard_reading import shard_index as shard_index
    from asyncrec.tools.splitting import SplitsReport as SplitsReport
    from asyncrec.tools.splitting import from_csv as from_csv
    from asyncrec.tools.splitting import from_folder as from_folder
    from asyncrec.tools.unfinished import UploadsReport as UploadsReport
    from asyncrec.tools.unfinished import uploads as uploads
    from asyncrec.tools.verifying import VerifyReport as VerifyReport
    from asyncrec.tools.verifying import verify as verify

# What is not core, and where it is.
_MOVED = {"report": "asyncrec_report.report, of the plugin asyncrec-report: pip install asyncrec-report"}

_resolve, __dir__, __all__ = lazy(
    __name__,
    {
        "asyncrec.tools.checkup": ("DoctorReport", "doctor"),
        "asyncrec.tools.converting": ("ConvertReport", "convert"),
        "asyncrec.tools.copying": ("CopyReport", "copy"),
        "asyncrec.tools.counting": ("CountReport", "count"),
        "asyncrec.tools.describing": ("InfoReport", "info"),
        "asyncrec.tools.indexing": ("IndexReport", "index"),
        "asyncrec.tools.records": ("FoundRecord", "RecordStream", "Where", "get_record", "open_records"),
        "asyncrec.tools.repairing": ("RepairReport", "repair"),
        "asyncrec.tools.resharding": ("ReshardReport", "reshard"),
        "asyncrec.tools.schemas": ("SchemaReport", "schema"),
        "asyncrec.tools.selecting": ("SelectedDataset", "SelectedShard", "Selection", "selected"),
        "asyncrec.tools.shard_reading": ("open_shard", "shard_index"),
        "asyncrec.tools.splitting": ("SplitsReport", "from_csv", "from_folder"),
        "asyncrec.tools.unfinished": ("UploadsReport", "uploads"),
        "asyncrec.tools.verifying": ("VerifyReport", "verify"),
    },
)


def __getattr__(name: str) -> Any:
    if name in _MOVED:
        raise AttributeError(f"asyncrec.tools.{name} is {_MOVED[name]}")
    return _resolve(name)
