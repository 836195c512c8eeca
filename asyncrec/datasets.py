"""Less commonly used names for data sets: folds, examples as tuples, and parts of manifests.

generate_dataset, get_tfrecord_filepaths, TupleReader    examples as tuples, as in TFRecorder
write_folds, WrittenSplits                               a CSV file as k folds
SplitPart                                                a part of an `asyncrec.Split`
WriterState, Sidecar, RecordLocation                     parts of an `asyncrec.Manifest` and of an `asyncrec.Dataset`
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrec._lazy import lazy

if TYPE_CHECKING:
    from asyncrec._datasets.from_csv.write import WrittenSplits as WrittenSplits
    from asyncrec._datasets.from_csv.write import write_folds as write_folds
    from asyncrec._datasets.reading.tuples import TupleReader as TupleReader
    from asyncrec._datasets.reading.tuples import generate_dataset as generate_dataset
    from asyncrec._datasets.reading.tuples import get_tfrecord_filepaths as get_tfrecord_filepaths
    from asyncrec._sampling.random_access.dataset import RecordLocation as RecordLocation
    from asyncrec._shards.manifest.manifest import WriterState as WriterState
    from asyncrec._shards.manifest.segment import Sidecar as Sidecar
    from asyncrec._shards.manifest.splits import SplitPart as SplitPart

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "asyncrec._datasets.from_csv.write": "WrittenSplits write_folds",
        "asyncrec._datasets.reading.tuples": "TupleReader generate_dataset get_tfrecord_filepaths",
        "asyncrec._sampling.random_access.dataset": "RecordLocation",
        "asyncrec._shards.manifest.manifest": "WriterState",
        "asyncrec._shards.manifest.segment": "Sidecar",
        "asyncrec._shards.manifest.splits": "SplitPart",
    },
)
