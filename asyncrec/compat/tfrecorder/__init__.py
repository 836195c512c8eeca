"""TFRecorder's examples and factory under the same names. Prefix each import with ``asyncrec.compat.``.

    import asyncrec.compat.tfrecorder.factory as tf_factory
    from asyncrec.compat.tfrecorder.helpers.decorator import tfrecordable
    from asyncrec.compat.tfrecorder.helpers.marshaller import Example

All of these names can also be imported from this module. Each split is published as a whole, has a manifest, and
replaces the previous one. The methods of examples run in the caller's thread, one after the other, unless
``examples_concurrency`` is above 1.
"""

from __future__ import annotations

from asyncrec.compat.tfrecorder._reading import (
    NoDirectoryError,
    generate_dataset,
    get_examples_list_filepaths,
    get_tfrecord_filepaths,
)
from asyncrec.compat.tfrecorder.factory import (
    generate_and_save_tfrecords_files_for_examples_dict,
    generate_and_save_tfrecords_files_for_examples_file,
    generate_and_save_tfrecords_files_for_examples_files_dict,
    generate_and_save_tfrecords_files_for_train_eval_test_examples_files,
    generate_and_save_train_eval_test_tfrecords_files,
    generate_and_save_train_eval_test_tfrecords_files_for_examples,
    split_examples_list,
)
from asyncrec.compat.tfrecorder.helpers.checker import assert_example_serialize_deserialize_is_ok
from asyncrec.compat.tfrecorder.helpers.decorator import tfrecordable
from asyncrec.compat.tfrecorder.helpers.marshaller import Example, FieldError, IgnoreExampleException

__all__ = [
    "Example",
    "FieldError",
    "IgnoreExampleException",
    "NoDirectoryError",
    "assert_example_serialize_deserialize_is_ok",
    "generate_and_save_tfrecords_files_for_examples_dict",
    "generate_and_save_tfrecords_files_for_examples_file",
    "generate_and_save_tfrecords_files_for_examples_files_dict",
    "generate_and_save_tfrecords_files_for_train_eval_test_examples_files",
    "generate_and_save_train_eval_test_tfrecords_files",
    "generate_and_save_train_eval_test_tfrecords_files_for_examples",
    "generate_dataset",
    "get_examples_list_filepaths",
    "get_tfrecord_filepaths",
    "split_examples_list",
    "tfrecordable",
]
