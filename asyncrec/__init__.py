"""asyncrec writes and reads TFRecord files from async Python.

Every public name is here, and nothing is imported until it is used (PEP 562): ``import asyncrec`` itself costs next to
nothing, and a program that only writes never loads what reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrec._lazy import lazy

if TYPE_CHECKING:
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
    from asyncrec.datasets.reader import SplitReader as SplitReader
    from asyncrec.datasets.reader import open_split as open_split
    from asyncrec.datasets.tabular import WrittenSplits as WrittenSplits
    from asyncrec.datasets.tabular import write_folds as write_folds
    from asyncrec.datasets.tabular import write_splits_from_csv as write_splits_from_csv
    from asyncrec.datasets.tuples import TupleReader as TupleReader
    from asyncrec.datasets.tuples import generate_dataset as generate_dataset
    from asyncrec.datasets.tuples import get_tfrecord_filepaths as get_tfrecord_filepaths
    from asyncrec.datasets.writer import DatasetWriter as DatasetWriter
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
    from asyncrec.example.codec import decode_example as decode_example
    from asyncrec.example.codec import decode_sequence_example as decode_sequence_example
    from asyncrec.example.codec import encode_example as encode_example
    from asyncrec.example.codec import encode_sequence_example as encode_sequence_example
    from asyncrec.example.declared import DeclaredExample as DeclaredExample
    from asyncrec.example.declared import IgnoreExample as IgnoreExample
    from asyncrec.example.declared import check_round_trip as check_round_trip
    from asyncrec.example.declared import tfrecordable as tfrecordable
    from asyncrec.example.features import Example as Example
    from asyncrec.example.features import Feature as Feature
    from asyncrec.example.features import Features as Features
    from asyncrec.example.features import SequenceExample as SequenceExample
    from asyncrec.example.features import bytes_feature as bytes_feature
    from asyncrec.example.features import bytes_list_feature as bytes_list_feature
    from asyncrec.example.features import float_list_feature as float_list_feature
    from asyncrec.example.features import int64_feature as int64_feature
    from asyncrec.example.features import int64_list_feature as int64_list_feature
    from asyncrec.example.schema import FixedLen as FixedLen
    from asyncrec.example.schema import Ragged as Ragged
    from asyncrec.example.schema import Schema as Schema
    from asyncrec.example.schema import Sequence as Sequence
    from asyncrec.example.schema import Sparse as Sparse
    from asyncrec.example.schema import SparseArrays as SparseArrays
    from asyncrec.example.schema import Tensor as Tensor
    from asyncrec.example.schema import VarLen as VarLen
    from asyncrec.framing.compression import CompressionOptions as CompressionOptions
    from asyncrec.framing.damage import Damage as Damage
    from asyncrec.plugins.hookspecs import hookimpl as hookimpl
    from asyncrec.records.index import RecordIndex as RecordIndex
    from asyncrec.records.reader import ReaderStats as ReaderStats
    from asyncrec.records.reader import RecordReader as RecordReader
    from asyncrec.records.reader import open_reader as open_reader
    from asyncrec.records.reader import read_records as read_records
    from asyncrec.records.writer import RecordWriter as RecordWriter
    from asyncrec.records.writer import WriterStats as WriterStats
    from asyncrec.records.writer import open_writer as open_writer
    from asyncrec.records.writer import write_records as write_records
    from asyncrec.shards.listing import list_shards as list_shards
    from asyncrec.shards.manifest import Manifest as Manifest
    from asyncrec.shards.manifest import WriterState as WriterState
    from asyncrec.shards.opening import open_sharded_writer as open_sharded_writer
    from asyncrec.shards.recovery import Recovery as Recovery
    from asyncrec.shards.recovery import UnfinishedJob as UnfinishedJob
    from asyncrec.shards.recovery import recover as recover
    from asyncrec.shards.segment import ShardEntry as ShardEntry
    from asyncrec.shards.segment import Sidecar as Sidecar
    from asyncrec.shards.snapshot import read_manifest as read_manifest
    from asyncrec.shards.splits import Split as Split
    from asyncrec.shards.splits import SplitPart as SplitPart
    from asyncrec.shards.splits import parse_split as parse_split
    from asyncrec.shards.stats import ShardedWriterStats as ShardedWriterStats
    from asyncrec.shards.writer import ShardedWriter as ShardedWriter
    from asyncrec.storage.base import ByteSink as ByteSink
    from asyncrec.storage.base import ByteSource as ByteSource
    from asyncrec.storage.base import ObjectInfo as ObjectInfo
    from asyncrec.storage.base import Storage as Storage
    from asyncrec.storage.base import UnfinishedUploads as UnfinishedUploads
    from asyncrec.storage.factory import StorageFactory as StorageFactory
    from asyncrec.storage.files import directory_check as directory_check
    from asyncrec.storage.files import make_valid_tf_name as make_valid_tf_name
    from asyncrec.storage.files import open_file as open_file
    from asyncrec.storage.registry import open_storage as open_storage
    from asyncrec.storage.registry import register_writer_factory as register_writer_factory

# Where each public name lives.
_HOMES = {
    "asyncrec.datasets.reader": ("SplitReader", "open_split"),
    "asyncrec.datasets.tabular": ("WrittenSplits", "write_folds", "write_splits_from_csv"),
    "asyncrec.datasets.tuples": ("TupleReader", "generate_dataset", "get_tfrecord_filepaths"),
    "asyncrec.datasets.writer": ("DatasetWriter",),
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
    "asyncrec.example.codec": (
        "decode_example",
        "decode_sequence_example",
        "encode_example",
        "encode_sequence_example",
    ),
    "asyncrec.example.declared": ("DeclaredExample", "IgnoreExample", "check_round_trip", "tfrecordable"),
    "asyncrec.example.features": (
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
    "asyncrec.example.schema": (
        "FixedLen",
        "Ragged",
        "Schema",
        "Sequence",
        "Sparse",
        "SparseArrays",
        "Tensor",
        "VarLen",
    ),
    "asyncrec.framing.compression": ("CompressionOptions",),
    "asyncrec.framing.damage": ("Damage",),
    "asyncrec.plugins.hookspecs": ("hookimpl",),
    "asyncrec.records.index": ("RecordIndex",),
    "asyncrec.records.reader": ("ReaderStats", "RecordReader", "open_reader", "read_records"),
    "asyncrec.records.writer": ("RecordWriter", "WriterStats", "open_writer", "write_records"),
    "asyncrec._sampling.balanced_sampler.sampler": ("ClassBalancedSampler",),
    "asyncrec._sampling.damage": ("ShardDamage",),
    "asyncrec._sampling.random_access.dataset": ("Dataset", "RecordLocation", "open_dataset"),
    "asyncrec._sampling.interleave_sampler.sampler": ("InterleaveSampler", "SamplerStats"),
    "asyncrec._sampling.interleave.shuffle_buffer": ("ShuffleBuffer",),
    "asyncrec._sampling.epochs.shuffled_stream": ("ShuffledStream", "StreamStats"),
    "asyncrec._sampling.interleave.stream": ("InterleaveStats", "InterleaveStream", "interleave"),
    "asyncrec.shards.manifest": ("Manifest", "WriterState"),
    "asyncrec.shards.opening": ("open_sharded_writer",),
    "asyncrec.shards.recovery": ("Recovery", "UnfinishedJob", "recover"),
    "asyncrec.shards.segment": ("ShardEntry", "Sidecar"),
    "asyncrec.shards.listing": ("list_shards",),
    "asyncrec.shards.snapshot": ("read_manifest",),
    "asyncrec.shards.splits": ("Split", "SplitPart", "parse_split"),
    "asyncrec.shards.stats": ("ShardedWriterStats",),
    "asyncrec.shards.writer": ("ShardedWriter",),
    "asyncrec.storage.base": ("ByteSink", "ByteSource", "ObjectInfo", "Storage", "UnfinishedUploads"),
    "asyncrec.storage.factory": ("StorageFactory",),
    "asyncrec.storage.files": ("directory_check", "make_valid_tf_name", "open_file"),
    "asyncrec.storage.registry": ("open_storage", "register_writer_factory"),
}
__getattr__, __dir__, __all__ = lazy(__name__, _HOMES)
