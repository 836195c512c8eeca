# ruff: noqa: C416, UP008, UP031  # as its users write it
# TFRecorder's README, "Overriding the split method": examples are cut into chunks; three ratios; more types.
import csv
import os
import random

import numpy as np
import tfrecorder.factory as tf_factory
from tfrecorder.helpers.decorator import tfrecordable
from tfrecorder.helpers.marshaller import Example, IgnoreExampleException


class ToyExample(Example):
    def __init__(self, name, label=0):
        super(ToyExample, self).__init__()
        self._name = name
        self._label = label
        self._src_data = None

    @tfrecordable(dtype=Example.Field.TYPE_STRING)
    def name(self):
        return self._name

    @name.setter
    def name(self, val):
        self._name = val

    @tfrecordable(dtype=Example.Field.TYPE_BOOL)
    def even(self):
        return 1 if self._label % 2 == 0 else 0

    @even.setter
    def even(self, val):
        pass

    @tfrecordable(dtype=Example.Field.TYPE_DOUBLE)
    def tenth(self):
        return self._label / 10

    @tenth.setter
    def tenth(self, val):
        pass

    @tfrecordable(dtype=Example.Field.TYPE_ARRAY_INT32)
    def src_data(self):
        return self._src_data

    @src_data.setter
    def src_data(self, val):
        self._src_data = val

    def load(self, src_data_dirpath=None, **kwargs):
        if self._label == 3:
            raise IgnoreExampleException("no data for %s" % self._name)
        self.src_data = np.load(os.path.join(src_data_dirpath, "%s.npy" % self._name))

    def split(self, chunk_size_in_bins=5, **kwargs):
        src_data = self.src_data

        chunked_examples = []
        for i in range(0, src_data.shape[0], chunk_size_in_bins):
            chunked_example = ToyExample("%s_%d" % (self._name, i), self._label)
            chunked_example.src_data = src_data[i : i + chunk_size_in_bins]
            chunked_examples.append(chunked_example)

        return chunked_examples

    @staticmethod
    def from_csv_row(row, **kwargs):
        return ToyExample(name=row[0], label=int(row[1]))

    def to_csv_row(self):
        return [self._name, self._label]


os.mkdir("data")
examples = []
for i in range(13):
    np.save("data/e%d.npy" % i, np.arange(i, i + 8, dtype=np.int32).reshape(4, 2))
    examples.append(ToyExample("e%d" % i, i))
Example.to_csv_file("all.csv", examples)
Example.to_csv_file("all.csv", examples[:2])
with open("all.csv") as f:
    print(len(list(csv.reader(f))))

random.seed(11)
counts = tf_factory.generate_and_save_train_eval_test_tfrecords_files_for_examples(
    "save", examples, [0.5, 0.3, 0.2], src_data_dirpath="data", chunk_size_in_bins=3
)
print(counts)
print([example.to_csv_row()[1] for example in examples])
for name in ("train", "eval", "test"):
    with open("save/%s/examples.csv" % name) as f:
        print(name, [row for row in csv.reader(f)])
    for text, even, tenth, data in tf_factory.generate_dataset(
        tf_factory.get_tfrecord_filepaths("save/" + name), ToyExample
    ):
        text = text.numpy().decode() if hasattr(text, "numpy") else text
        print(text, bool(even), float(tenth), [int(x) for x in data])
