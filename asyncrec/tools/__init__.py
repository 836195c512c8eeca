"""The functions of the command line, for use in Python: ``report = await asyncrec.tools.verify("s3://crawl/pages")``.

Each function accepts a path (a file, a folder, a pattern, or a data set) with ``storage=`` or ``storage_options=``, and
returns a report, which is a dataclass with ``to_json()``. To write a tool, find the shards of a path with `selected`,
and read them with `open_shard`, as the plugin asyncrec-report does.

The command NAME is implemented in ``_NAME.py``, as in `asyncrec.cli`. ``head`` uses `open_records`, ``cat`` uses
`open_records` and `get_record`, ``tail`` uses `open_tail`, and ``sample`` without a target uses `open_sample`. The
tools share the modules `_selection` (the shards of a path), `_shard_reading`, `_checks` (one shard, checked),
`_read_through`, `_conditions`, `_keyed_records` (records with their keys, written to a new target),
`_converted_before`, `_identity` (equal records), `_salvaged` (a damaged shard with its keys), `_orphans`, `_splits`
(train, eval and test), `_sorting`, `_probes`, `_json_values`, `_formats`, `_parameters`, `_watch_report`,
`_report_json`.

Names are resolved on first use (PEP 562), so importing one tool does not load the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncrec._lazy import lazy

if TYPE_CHECKING:
    from asyncrec.tools._cat import get_record as get_record
    from asyncrec.tools._compact import compact as compact
    from asyncrec.tools._compact_report import CompactReport as CompactReport
    from asyncrec.tools._conditions import Where as Where
    from asyncrec.tools._convert import convert as convert
    from asyncrec.tools._converted_before import ConvertReport as ConvertReport
    from asyncrec.tools._copy import CopyReport as CopyReport
    from asyncrec.tools._copy import copy as copy
    from asyncrec.tools._count import CountReport as CountReport
    from asyncrec.tools._count import count as count
    from asyncrec.tools._dedupe import dedupe as dedupe
    from asyncrec.tools._delete import delete as delete
    from asyncrec.tools._delete_report import DeleteReport as DeleteReport
    from asyncrec.tools._diff import DiffReport as DiffReport
    from asyncrec.tools._diff import diff as diff
    from asyncrec.tools._doctor import doctor as doctor
    from asyncrec.tools._doctor_report import DoctorReport as DoctorReport
    from asyncrec.tools._filter import filter as filter  # noqa: A004  # named like the command
    from asyncrec.tools._forget_source import forget_source as forget_source
    from asyncrec.tools._from_csv import from_csv as from_csv
    from asyncrec.tools._from_folder import from_folder as from_folder
    from asyncrec.tools._head import FoundRecord as FoundRecord
    from asyncrec.tools._head import RecordStream as RecordStream
    from asyncrec.tools._head import open_records as open_records
    from asyncrec.tools._index import IndexReport as IndexReport
    from asyncrec.tools._index import index as index
    from asyncrec.tools._info import InfoReport as InfoReport
    from asyncrec.tools._info import info as info
    from asyncrec.tools._keyed_records import WriteReport as WriteReport
    from asyncrec.tools._ls import Listed as Listed
    from asyncrec.tools._ls import LsReport as LsReport
    from asyncrec.tools._ls import ls as ls
    from asyncrec.tools._merge import merge as merge
    from asyncrec.tools._parameters import at_once as at_once
    from asyncrec.tools._parameters import check_jobs as check_jobs
    from asyncrec.tools._recover import RecoverReport as RecoverReport
    from asyncrec.tools._recover import recover as recover
    from asyncrec.tools._repair import RepairReport as RepairReport
    from asyncrec.tools._repair import repair as repair
    from asyncrec.tools._reshard import ReshardReport as ReshardReport
    from asyncrec.tools._reshard import reshard as reshard
    from asyncrec.tools._salvaged import ShardLoss as ShardLoss
    from asyncrec.tools._sample import SampleStream as SampleStream
    from asyncrec.tools._sample import open_sample as open_sample
    from asyncrec.tools._sample import sample as sample
    from asyncrec.tools._schema import SchemaReport as SchemaReport
    from asyncrec.tools._schema import schema as schema
    from asyncrec.tools._selection import SelectedDataset as SelectedDataset
    from asyncrec.tools._selection import SelectedShard as SelectedShard
    from asyncrec.tools._selection import Selection as Selection
    from asyncrec.tools._selection import selected as selected
    from asyncrec.tools._shard_reading import open_shard as open_shard
    from asyncrec.tools._shard_reading import shard_index as shard_index
    from asyncrec.tools._splits import SplitsReport as SplitsReport
    from asyncrec.tools._tail import TailStream as TailStream
    from asyncrec.tools._tail import open_tail as open_tail
    from asyncrec.tools._uploads import UploadsReport as UploadsReport
    from asyncrec.tools._uploads import uploads as uploads
    from asyncrec.tools._verify import VerifyReport as VerifyReport
    from asyncrec.tools._verify import verify as verify
    from asyncrec.tools._watch import Watch as Watch
    from asyncrec.tools._watch import open_watch as open_watch
    from asyncrec.tools._watch import watch as watch
    from asyncrec.tools._watch_report import WatchedWriter as WatchedWriter
    from asyncrec.tools._watch_report import WatchReport as WatchReport

# Names that have moved out of the core, with their new locations.
_MOVED = {"report": "asyncrec_report.report, in the plugin asyncrec-report: pip install asyncrec-report"}

_resolve, __dir__, __all__ = lazy(
    __name__,
    {
        "asyncrec.tools._cat": "get_record",
        "asyncrec.tools._compact": "compact",
        "asyncrec.tools._compact_report": "CompactReport",
        "asyncrec.tools._convert": "convert",
        "asyncrec.tools._converted_before": "ConvertReport",
        "asyncrec.tools._copy": "CopyReport copy",
        "asyncrec.tools._count": "CountReport count",
        "asyncrec.tools._doctor": "doctor",
        "asyncrec.tools._doctor_report": "DoctorReport",
        "asyncrec.tools._from_csv": "from_csv",
        "asyncrec.tools._from_folder": "from_folder",
        "asyncrec.tools._conditions": "Where",
        "asyncrec.tools._forget_source": "forget_source",
        "asyncrec.tools._head": "FoundRecord RecordStream open_records",
        "asyncrec.tools._info": "InfoReport info",
        "asyncrec.tools._index": "IndexReport index",
        "asyncrec.tools._parameters": "at_once check_jobs",
        "asyncrec.tools._recover": "RecoverReport recover",
        "asyncrec.tools._repair": "RepairReport repair",
        "asyncrec.tools._reshard": "ReshardReport reshard",
        "asyncrec.tools._schema": "SchemaReport schema",
        "asyncrec.tools._selection": "SelectedDataset SelectedShard Selection selected",
        "asyncrec.tools._shard_reading": "open_shard shard_index",
        "asyncrec.tools._splits": "SplitsReport",
        "asyncrec.tools._uploads": "UploadsReport uploads",
        "asyncrec.tools._dedupe": "dedupe",
        "asyncrec.tools._delete": "delete",
        "asyncrec.tools._delete_report": "DeleteReport",
        "asyncrec.tools._diff": "DiffReport diff",
        "asyncrec.tools._filter": "filter",
        "asyncrec.tools._keyed_records": "WriteReport",
        "asyncrec.tools._ls": "Listed LsReport ls",
        "asyncrec.tools._merge": "merge",
        "asyncrec.tools._salvaged": "ShardLoss",
        "asyncrec.tools._sample": "SampleStream open_sample sample",
        "asyncrec.tools._tail": "TailStream open_tail",
        "asyncrec.tools._verify": "VerifyReport verify",
        "asyncrec.tools._watch": "Watch open_watch watch",
        "asyncrec.tools._watch_report": "WatchReport WatchedWriter",
    },
)


def __getattr__(name: str) -> Any:
    if name in _MOVED:
        raise AttributeError(f"asyncrec.tools.{name} has moved to {_MOVED[name]}")
    return _resolve(name)
