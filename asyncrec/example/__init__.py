"""tf.train.Example and SequenceExample, to and from Python and NumPy: pure functions over bytes.

What most programs need is in `asyncrec` alone: `Schema` with `FixedLen`, `VarLen`, `Ragged` and `Sparse`,
`encode_example`, `decode_example`, and the two for sequence examples.

_codec, _features                  single examples are made and read
_schema                            a schema gives them types, and reads them by batches
_encoding, _conversions            values that a schema describes become records
_declared                          examples are made of the attributes of a class
_wire, _varints                    the format is read
_values                            what a Python value becomes
_columns, _scan                    many records are read at once
_found                             the same, without a schema
_entries, _kinds, _compound, _dtypes    what a schema is made of
_infer                             a schema is found
_fields                            what a class declares
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrec._lazy import lazy

if TYPE_CHECKING:
    from asyncrec.example._declared import DeclaredExample as DeclaredExample
    from asyncrec.example._declared import IgnoreExample as IgnoreExample
    from asyncrec.example._declared import check_round_trip as check_round_trip
    from asyncrec.example._declared import tfrecordable as tfrecordable
    from asyncrec.example._features import bytes_feature as bytes_feature
    from asyncrec.example._features import bytes_list_feature as bytes_list_feature
    from asyncrec.example._features import float_list_feature as float_list_feature
    from asyncrec.example._features import int64_feature as int64_feature
    from asyncrec.example._features import int64_list_feature as int64_list_feature
    from asyncrec.example._found import decode_columns as decode_columns
    from asyncrec.example._schema import Sequence as Sequence
    from asyncrec.example._schema import SparseArrays as SparseArrays
    from asyncrec.example._schema import Tensor as Tensor
    from asyncrec.example.proto.example_pb2 import Example as Example
    from asyncrec.example.proto.example_pb2 import Feature as Feature
    from asyncrec.example.proto.example_pb2 import Features as Features
    from asyncrec.example.proto.example_pb2 import SequenceExample as SequenceExample

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "asyncrec.example._declared": "DeclaredExample IgnoreExample check_round_trip tfrecordable",
        "asyncrec.example._features": (
            "bytes_feature bytes_list_feature float_list_feature int64_feature int64_list_feature"
        ),
        "asyncrec.example._found": "decode_columns",
        "asyncrec.example._schema": "Sequence SparseArrays Tensor",
        "asyncrec.example.proto.example_pb2": "Example Feature Features SequenceExample",
    },
)
