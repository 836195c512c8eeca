"""Convert tf.train.Example and SequenceExample records to and from Python and NumPy values, without I/O.

Most programs need only names from `asyncrec` itself: `Schema`, `FixedLen`, `VarLen`, `Ragged`, `Sparse`,
`encode_example`, `decode_example`, and the same two functions for sequence examples.

_codec, _features                  encode and decode single examples
_schema                            declares the types of features, and decodes batches
_encoding, _conversions            encode values according to a schema
_declared                          encodes the attributes of a class
_wire, _varints                    parse the wire format
_values                            converts Python values to features
_columns, _scan                    decode many records at once
_found                             decodes many records without a schema
_entries, _kinds, _compound, _dtypes    the entries of a schema
_infer                             infers a schema
_fields                            the declared fields of a class
_age, _by_name                     compare versions of a record by a feature and find features by name
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
