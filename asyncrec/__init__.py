"""asyncrec writes and reads TFRecord files from async Python.

Every public name is here, and nothing is imported until it is used (PEP 562): ``import asyncrec`` itself costs next to
nothing, and a program that only writes never loads what reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrec._lazy import lazy

if TYPE_CHECKING:
    from asyncrec._datasets.from_csv.write import WrittenSplits as WrittenSplits
    from asyncrec._datasets.from_csv.write import write_folds as write_folds
    from asyncrec._datasets.from_csv.write import write_splits_from_csv as write_splits_from_csv
    from asyncrec._datasets.from_generator.writer import DatasetWriter as DatasetWriter
    from asyncrec._datasets.reading.reader import SplitReader as SplitReader
    from asyncrec._datasets.reading.reader import open_split as open_split
    from asyncrec._datasets.reading.tuples import TupleReader as TupleReader
    from asyncrec._datasets.reading.tuples import generate_dataset as generate_dataset
    from asyncrec._datasets.reading.tuples import get_tfrecord_filepaths as get_tfrecord_filepaths
    from asyncrec._framing.compression import CompressionOptions as CompressionOptions
    from asyncrec._framing.damage import Damage as Damage
    from asyncrec._records.index import RecordIndex as RecordIndex
    from asyncrec._records.reading.reader import ReaderStats as ReaderStats
    from asyncrec._records.reading.reader import RecordReader as RecordReader
    from asyncrec._records.reading.reader import open_reader as open_reader
    from asyncrec._records.reading.reader import read_records as read_records
    from asyncrec._records.writing.writer import RecordWriter as RecordWriter
    from asyncrec._records.writing.writer import WriterStats as WriterStats
    from asyncrec._records.writing.writer import open_writer as open_writer
    from asyncrec._records.writing.writer import write_records as write_records
    from asyncrec._sampling.balanced_sampler.sampler import ClassBalancedSampler as ClassBalancedSampler
    from asyncrec._sampling.damage import ShardDamage as ShardDamage
    from asyncrec._sampling.epochs.shuffled_stream import ShuffledStream as ShuffledStream
    from asyncrec._sampling.epochs.shuffled_stream import StreamStats as StreamStats
    from asyncrec._sampling.interleave.shuffle_buffer import ShuffleBuffer as ShuffleBuffer
    from asyncrec._sampling.interleave.stream import InterleaveStats as InterleaveStats
    from asyncrec._sampling.interleave.stream import InterleaveStream as InterleaveStream
    from asyncrec._sampling.interleave.stream import interleave as interleave
    from asyncrec._sampling.interleave_sampler.sampler import InterleaveSampler as InterleaveSampler
    from asyncrec._sampling.interleave_sampler.sampler import SamplerStats as SamplerStats
    from asyncrec._sampling.random_access.dataset import Dataset as Dataset
    from asyncrec._sampling.random_access.dataset import RecordLocation as RecordLocation
    from asyncrec._sampling.random_access.dataset import open_dataset as open_dataset
    from asyncrec._shards.manifest.manifest import Manifest as Manifest
    from asyncrec._shards.manifest.manifest import WriterState as WriterState
    from asyncrec._shards.manifest.segment import ShardEntry as ShardEntry
    from asyncrec._shards.manifest.segment import Sidecar as Sidecar
    from asyncrec._shards.manifest.snapshot import read_manifest as read_manifest
    from asyncrec._shards.manifest.splits import Split as Split
    from asyncrec._shards.manifest.splits import SplitPart as SplitPart
    from asyncrec._shards.manifest.splits import parse_split as parse_split
    from asyncrec._shards.ownership.listing import list_shards as list_shards
    from asyncrec._shards.recovery.recover import Recovery as Recovery
    from asyncrec._shards.recovery.recover import UnfinishedJob as UnfinishedJob
    from asyncrec._shards.recovery.recover import recover as recover
    from asyncrec._shards.writing.open import open_sharded_writer as open_sharded_writer
    from asyncrec._shards.writing.stats import ShardedWriterStats as ShardedWriterStats
    from asyncrec._shards.writing.writer import ShardedWriter as ShardedWriter
    from asyncrec.errors import AmbiguousSchemeError as AmbiguousSchemeError
    from asyncrec.errors import ArgumentError as ArgumentError
    from asyncrec.errors import AsyncRecError as AsyncRecError
    from asyncrec.errors import ConflictError as ConflictError
    from asyncrec.errors import CorruptRecordError as CorruptRecordError
    from asyncrec.errors import DatasetError as DatasetError
    from asyncrec.errors import DecodeError as DecodeError
    from asyncrec.errors import DuplicateKeyError as DuplicateKeyError
    from asyncrec.errors import ExampleError as ExampleError
    from asyncrec.errors import FormatError as FormatError
    from asyncrec.errors import IntegrityError as IntegrityError
    from asyncrec.errors import ManifestError as ManifestError
    from asyncrec.errors import ObjectChangedError as ObjectChangedError
    from asyncrec.errors import ObjectExistsError as ObjectExistsError
    from asyncrec.errors import ObjectNotFoundError as ObjectNotFoundError
    from asyncrec.errors import PluginError as PluginError
    from asyncrec.errors import RecordTooLargeError as RecordTooLargeError
    from asyncrec.errors import SchemaError as SchemaError
    from asyncrec.errors import StorageError as StorageError
    from asyncrec.errors import StoragePermissionError as StoragePermissionError
    from asyncrec.errors import TransientStorageError as TransientStorageError
    from asyncrec.errors import TruncatedError as TruncatedError
    from asyncrec.errors import UnknownSchemeError as UnknownSchemeError
    from asyncrec.errors import UnsupportedBackendError as UnsupportedBackendError
    from asyncrec.example._codec import decode_example as decode_example
    from asyncrec.example._codec import decode_sequence_example as decode_sequence_example
    from asyncrec.example._codec import encode_example as encode_example
    from asyncrec.example._codec import encode_sequence_example as encode_sequence_example
    from asyncrec.example._declared import DeclaredExample as DeclaredExample
    from asyncrec.example._declared import IgnoreExample as IgnoreExample
    from asyncrec.example._declared import check_round_trip as check_round_trip
    from asyncrec.example._declared import tfrecordable as tfrecordable
    from asyncrec.example._features import Example as Example
    from asyncrec.example._features import Feature as Feature
    from asyncrec.example._features import Features as Features
    from asyncrec.example._features import SequenceExample as SequenceExample
    from asyncrec.example._features import bytes_feature as bytes_feature
    from asyncrec.example._features import bytes_list_feature as bytes_list_feature
    from asyncrec.example._features import float_list_feature as float_list_feature
    from asyncrec.example._features import int64_feature as int64_feature
    from asyncrec.example._features import int64_list_feature as int64_list_feature
    from asyncrec.example._schema import FixedLen as FixedLen
    from asyncrec.example._schema import Ragged as Ragged
    from asyncrec.example._schema import Schema as Schema
    from asyncrec.example._schema import Sequence as Sequence
    from asyncrec.example._schema import Sparse as Sparse
    from asyncrec.example._schema import SparseArrays as SparseArrays
    from asyncrec.example._schema import Tensor as Tensor
    from asyncrec.example._schema import VarLen as VarLen
    from asyncrec.plugins._hookspecs import hookimpl as hookimpl
    from asyncrec.storage._base import ByteSink as ByteSink
    from asyncrec.storage._base import ByteSource as ByteSource
    from asyncrec.storage._base import ObjectInfo as ObjectInfo
    from asyncrec.storage._base import Storage as Storage
    from asyncrec.storage._base import UnfinishedUploads as UnfinishedUploads
    from asyncrec.storage._factory import StorageFactory as StorageFactory
    from asyncrec.storage._files import directory_check as directory_check
    from asyncrec.storage._files import make_valid_tf_name as make_valid_tf_name
    from asyncrec.storage._files import open_file as open_file
    from asyncrec.storage._registry import open_storage as open_storage
    from asyncrec.storage._registry import register_writer_factory as register_writer_factory

# Where each public name lives.
_HOMES = {
    "asyncrec._datasets.reading.reader": ("SplitReader", "open_split"),
    "asyncrec._datasets.from_csv.write": ("WrittenSplits", "write_folds", "write_splits_from_csv"),
    "asyncrec._datasets.reading.tuples": ("TupleReader", "generate_dataset", "get_tfrecord_filepaths"),
    "asyncrec._datasets.from_generator.writer": ("DatasetWriter",),
    "asyncrec.errors": (
        "AmbiguousSchemeError",
        "ArgumentError",
        "AsyncRecError",
        "ConflictError",
        "CorruptRecordError",
        "DatasetError",
        "DecodeError",
        "DuplicateKeyError",
        "ExampleError",
        "FormatError",
        "IntegrityError",
        "ManifestError",
        "ObjectChangedError",
        "ObjectExistsError",
        "ObjectNotFoundError",
        "PluginError",
        "RecordTooLargeError",
        "SchemaError",
        "StorageError",
        "StoragePermissionError",
        "TransientStorageError",
        "TruncatedError",
        "UnknownSchemeError",
        "UnsupportedBackendError",
    ),
    "asyncrec.example._codec": (
        "decode_example",
        "decode_sequence_example",
        "encode_example",
        "encode_sequence_example",
    ),
    "asyncrec.example._declared": ("DeclaredExample", "IgnoreExample", "check_round_trip", "tfrecordable"),
    "asyncrec.example._features": (
        "Example",
        "Feature",
        "Features",
        "SequenceExample",
        "bytes_feature",
        "bytes_list_feature",
        "float_list_feature",
        "int64_feature",
        "int64_list_feature",
    ),
    "asyncrec.example._schema": (
        "FixedLen",
        "Ragged",
        "Schema",
        "Sequence",
        "Sparse",
        "SparseArrays",
        "Tensor",
        "VarLen",
    ),
    "asyncrec._framing.compression": ("CompressionOptions",),
    "asyncrec._framing.damage": ("Damage",),
    "asyncrec.plugins._hookspecs": ("hookimpl",),
    "asyncrec._records.index": ("RecordIndex",),
    "asyncrec._records.reading.reader": ("ReaderStats", "RecordReader", "open_reader", "read_records"),
    "asyncrec._records.writing.writer": ("RecordWriter", "WriterStats", "open_writer", "write_records"),
    "asyncrec._sampling.balanced_sampler.sampler": ("ClassBalancedSampler",),
    "asyncrec._sampling.damage": ("ShardDamage",),
    "asyncrec._sampling.random_access.dataset": ("Dataset", "RecordLocation", "open_dataset"),
    "asyncrec._sampling.interleave_sampler.sampler": ("InterleaveSampler", "SamplerStats"),
    "asyncrec._sampling.interleave.shuffle_buffer": ("ShuffleBuffer",),
    "asyncrec._sampling.epochs.shuffled_stream": ("ShuffledStream", "StreamStats"),
    "asyncrec._sampling.interleave.stream": ("InterleaveStats", "InterleaveStream", "interleave"),
    "asyncrec._shards.manifest.manifest": ("Manifest", "WriterState"),
    "asyncrec._shards.writing.open": ("open_sharded_writer",),
    "asyncrec._shards.recovery.recover": ("Recovery", "UnfinishedJob", "recover"),
    "asyncrec._shards.manifest.segment": ("ShardEntry", "Sidecar"),
    "asyncrec._shards.ownership.listing": ("list_shards",),
    "asyncrec._shards.manifest.snapshot": ("read_manifest",),
    "asyncrec._shards.manifest.splits": ("Split", "SplitPart", "parse_split"),
    "asyncrec._shards.writing.stats": ("ShardedWriterStats",),
    "asyncrec._shards.writing.writer": ("ShardedWriter",),
    "asyncrec.storage._base": ("ByteSink", "ByteSource", "ObjectInfo", "Storage", "UnfinishedUploads"),
    "asyncrec.storage._factory": ("StorageFactory",),
    "asyncrec.storage._files": ("directory_check", "make_valid_tf_name", "open_file"),
    "asyncrec.storage._registry": ("open_storage", "register_writer_factory"),
}
__getattr__, __dir__, __all__ = lazy(__name__, _HOMES)
