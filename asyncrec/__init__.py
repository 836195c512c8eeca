"""asyncrec writes and reads TFRecord files from async Python.

This package exports the names that most programs use. Other names are in its modules: `asyncrec.blocking` (the same
names without async), `datasets`, `errors`, `example`, `native`, `pages`, `plugins`, `stats`, `storage`, `testing` and
`tools`; `asyncrec.compat` and `asyncrec.integrations` are for use with other libraries. Modules whose names begin with
an underscore are private.

Names are imported on first use (PEP 562), so ``import asyncrec`` is fast, and a program that only writes never loads
the reading code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrec._lazy import lazy

if TYPE_CHECKING:
    from asyncrec import blocking as blocking
    from asyncrec import datasets as datasets
    from asyncrec import errors as errors
    from asyncrec import example as example
    from asyncrec import native as native
    from asyncrec import pages as pages
    from asyncrec import plugins as plugins
    from asyncrec import stats as stats
    from asyncrec import storage as storage
    from asyncrec import testing as testing
    from asyncrec import tools as tools
    from asyncrec._datasets.from_csv.write import write_splits_from_csv as write_splits_from_csv
    from asyncrec._datasets.from_generator.writer import DatasetWriter as DatasetWriter
    from asyncrec._datasets.reading.reader import SplitReader as SplitReader
    from asyncrec._datasets.reading.reader import open_split as open_split
    from asyncrec._framing.compression import CompressionOptions as CompressionOptions
    from asyncrec._framing.damage import Damage as Damage
    from asyncrec._records.index import RecordIndex as RecordIndex
    from asyncrec._records.reading.reader import RecordReader as RecordReader
    from asyncrec._records.reading.reader import open_reader as open_reader
    from asyncrec._records.reading.reader import read_records as read_records
    from asyncrec._records.writing.writer import RecordWriter as RecordWriter
    from asyncrec._records.writing.writer import open_writer as open_writer
    from asyncrec._records.writing.writer import write_examples as write_examples
    from asyncrec._records.writing.writer import write_records as write_records
    from asyncrec._sampling.balanced_sampler.sampler import ClassBalancedSampler as ClassBalancedSampler
    from asyncrec._sampling.damage import ShardDamage as ShardDamage
    from asyncrec._sampling.epochs.shuffled_stream import ShuffledStream as ShuffledStream
    from asyncrec._sampling.interleave.shuffle_buffer import ShuffleBuffer as ShuffleBuffer
    from asyncrec._sampling.interleave.stream import InterleaveStream as InterleaveStream
    from asyncrec._sampling.interleave.stream import interleave as interleave
    from asyncrec._sampling.interleave_sampler.sampler import InterleaveSampler as InterleaveSampler
    from asyncrec._sampling.random_access.dataset import Dataset as Dataset
    from asyncrec._sampling.random_access.opening import open_dataset as open_dataset
    from asyncrec._shards.manifest.manifest import Manifest as Manifest
    from asyncrec._shards.manifest.segment import ShardEntry as ShardEntry
    from asyncrec._shards.manifest.snapshot import read_manifest as read_manifest
    from asyncrec._shards.manifest.splits import Split as Split
    from asyncrec._shards.manifest.splits import parse_split as parse_split
    from asyncrec._shards.ownership.listing import list_shards as list_shards
    from asyncrec._shards.recovery.recover import recover as recover
    from asyncrec._shards.recovery.report import Recovery as Recovery
    from asyncrec._shards.recovery.report import UnfinishedJob as UnfinishedJob
    from asyncrec._shards.writing.open import open_sharded_writer as open_sharded_writer
    from asyncrec._shards.writing.writer import ShardedWriter as ShardedWriter
    from asyncrec.errors import AsyncRecError as AsyncRecError
    from asyncrec.errors import ConflictError as ConflictError
    from asyncrec.errors import CorruptRecordError as CorruptRecordError
    from asyncrec.errors import ObjectExistsError as ObjectExistsError
    from asyncrec.errors import ObjectNotFoundError as ObjectNotFoundError
    from asyncrec.errors import StorageError as StorageError
    from asyncrec.example._codec import decode_example as decode_example
    from asyncrec.example._codec import decode_sequence_example as decode_sequence_example
    from asyncrec.example._codec import encode_example as encode_example
    from asyncrec.example._codec import encode_sequence_example as encode_sequence_example
    from asyncrec.example._schema import FixedLen as FixedLen
    from asyncrec.example._schema import Ragged as Ragged
    from asyncrec.example._schema import Schema as Schema
    from asyncrec.example._schema import Sparse as Sparse
    from asyncrec.example._schema import VarLen as VarLen
    from asyncrec.storage._files import open_file as open_file
    from asyncrec.storage._registry import open_storage as open_storage

    __version__: str

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "asyncrec._datasets.from_csv.write": "write_splits_from_csv",
        "asyncrec._datasets.from_generator.writer": "DatasetWriter",
        "asyncrec._datasets.reading.reader": "SplitReader open_split",
        "asyncrec._framing.compression": "CompressionOptions",
        "asyncrec._framing.damage": "Damage",
        "asyncrec._records.index": "RecordIndex",
        "asyncrec._records.reading.reader": "RecordReader open_reader read_records",
        "asyncrec._records.writing.writer": "RecordWriter open_writer write_examples write_records",
        "asyncrec._sampling.balanced_sampler.sampler": "ClassBalancedSampler",
        "asyncrec._sampling.damage": "ShardDamage",
        "asyncrec._sampling.epochs.shuffled_stream": "ShuffledStream",
        "asyncrec._sampling.interleave.shuffle_buffer": "ShuffleBuffer",
        "asyncrec._sampling.interleave.stream": "InterleaveStream interleave",
        "asyncrec._sampling.interleave_sampler.sampler": "InterleaveSampler",
        "asyncrec._sampling.random_access.dataset": "Dataset",
        "asyncrec._sampling.random_access.opening": "open_dataset",
        "asyncrec._shards.manifest.manifest": "Manifest",
        "asyncrec._shards.manifest.segment": "ShardEntry",
        "asyncrec._shards.manifest.snapshot": "read_manifest",
        "asyncrec._shards.manifest.splits": "Split parse_split",
        "asyncrec._shards.ownership.listing": "list_shards",
        "asyncrec._shards.recovery.recover": "recover",
        "asyncrec._shards.recovery.report": "Recovery UnfinishedJob",
        "asyncrec._shards.writing.open": "open_sharded_writer",
        "asyncrec._shards.writing.writer": "ShardedWriter",
        "asyncrec.errors": (
            "AsyncRecError ConflictError CorruptRecordError ObjectExistsError ObjectNotFoundError StorageError"
        ),
        "asyncrec.example._codec": "decode_example decode_sequence_example encode_example encode_sequence_example",
        "asyncrec.example._schema": "FixedLen Ragged Schema Sparse VarLen",
        "asyncrec.storage._files": "open_file",
        "asyncrec.storage._registry": "open_storage",
    },
    modules="blocking datasets errors example native pages plugins stats storage testing tools",
)
