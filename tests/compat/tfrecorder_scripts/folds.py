# ruff: noqa: UP031  # as its users write it
# TFRecorder's factory, "fold_0/fold_1/etc. sets for k-folding": examples are in several folds, read from a database.
import sqlite3

import numpy as np
import tfrecorder.factory as tf_factory
from tfrecorder.helpers.checker import assert_example_serialize_deserialize_is_ok
from tfrecorder.helpers.decorator import tfrecordable
from tfrecorder.helpers.marshaller import Example

database = sqlite3.connect(":memory:")  # can only be used in this thread
database.execute("create table features (name text, value real)")
database.executemany("insert into features values (?, ?)", [("e%d" % i, i + 0.25) for i in range(9)])


class Row(Example):
    def __init__(self, name, weights=None):
        super().__init__()
        self._name, self._value, self._weights = name, None, weights

    @tfrecordable(Example.Field.TYPE_STRING)
    def name(self):
        return self._name

    @name.setter
    def name(self, val):
        pass

    @tfrecordable(Example.Field.TYPE_FLOAT)
    def value(self):
        return self._value

    @value.setter
    def value(self, val):
        self._value = val

    def load(self, **kwargs):
        (self.value,) = database.execute("select value from features where name = ?", (self._name,)).fetchone()

    @classmethod
    def from_csv_row(cls, row, **kwargs):
        return cls(row[0])

    def to_csv_row(self):
        return [self._name]


class Held(Example):  # its data is passed to it rather than loaded
    def __init__(self, weights):
        super().__init__()
        self._weights = weights

    @tfrecordable(Example.Field.TYPE_ARRAY_FLOAT32)
    def weights(self):
        return self._weights

    @weights.setter
    def weights(self, val):
        self._weights = val


rows = [Row("e%d" % i) for i in range(9)]
folds = {}
for k in range(3):
    folds["fold_%d_train" % k] = [row for i, row in enumerate(rows) if i % 3 != k]
    folds["fold_%d_eval" % k] = rows[k::3]
folds["_none"] = []
print(tf_factory.generate_and_save_tfrecords_files_for_examples_dict("folds", folds))
for name in folds:
    dataset = tf_factory.generate_dataset(tf_factory.get_tfrecord_filepaths("folds/" + name), Row)
    print(name, [float(value) for _, value in dataset])

held = [Held(np.full((2, 2), i, np.float32)) for i in range(3)]
tf_factory.generate_and_save_tfrecords_files_for_examples_dict(
    "held", {"a": held, "b": held[1:]}, examples_log_in_csv_file=False
)
for name in ("a", "b"):
    dataset = tf_factory.generate_dataset(tf_factory.get_tfrecord_filepaths("held/" + name), Held)
    print(name, [[float(x) for x in weights] for (weights,) in dataset])

print(assert_example_serialize_deserialize_is_ok([Row("e1"), Row("e2")]))
print(list(Row.get_tfrecordable_ordered_dict()), Row.get_tfrecordable_attribute_names())
print(tf_factory.split_examples_list(list(range(7)), [0.5, 0.3, 0.2]), tf_factory.split_examples_list([1, 2, 3], 0.8))
for call in (tf_factory.get_tfrecord_filepaths, tf_factory.get_examples_list_filepaths):
    try:
        call("nowhere")
    except ValueError as error:
        print(error)
