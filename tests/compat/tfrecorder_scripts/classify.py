# ruff: noqa: C416, UP008, UP031  # as its users write it
# TFRecorder's README, "Subclassing Example" to "Generating a tf.data.Dataset": a label and an array, loaded late.
import csv
import os
import random

import numpy as np
import tfrecorder.factory as tf_factory
from tfrecorder.helpers.decorator import tfrecordable
from tfrecorder.helpers.marshaller import Example


class ToyExample(Example):
    def __init__(self, name, label):

        super(ToyExample, self).__init__()
        self.name = name
        self._label = label  # this is an int, so we assign it when instantiating
        self._data = None  # this is a float array, so we defer loading

    # CAUTION: the attributes must be declared in the same order than expected when parsing in tf.Dataset
    @tfrecordable(dtype=Example.Field.TYPE_INT32)
    def label(self):
        return self._label

    @label.setter
    def label(self, val):
        self._label = val

    @tfrecordable(dtype=Example.Field.TYPE_ARRAY_FLOAT32)
    def data(self):
        return self._data

    @data.setter
    def data(self, val):
        self._data = val

    def load(self, src_data_dirpath=None, normalize=False, **kwargs):
        data = np.load(os.path.join(src_data_dirpath, "%s.npy" % self.name))

        if normalize:
            data /= np.max(data)

        self.data = data

    @staticmethod
    def from_csv_row(row, **kwargs):
        return ToyExample(name=row[0], label=int(row[1]))

    def to_csv_row(self):
        return [self.name, self._label]


os.mkdir("data")
with open("examples.csv", "w", newline="") as f:
    for i in range(13):
        np.save("data/e%d.npy" % i, np.arange(1, 5 + i, dtype=np.float32))
        csv.writer(f).writerow(["e%d" % i, i])

random.seed(7)
tf_factory.generate_and_save_train_eval_test_tfrecords_files(
    save_directory_path="save",
    examples_class=ToyExample,
    examples_filepath="examples.csv",
    src_data_dirpath="data",
    normalize=True,
)

print(sorted(name for name in os.listdir("save") if name != "log.txt"))
with open("save/tfrecord_files_config.txt") as f:
    print([line for line in f.read().splitlines() if "path" not in line])
for name in ("train", "eval"):
    with open(tf_factory.get_examples_list_filepaths("save/" + name)) as f:
        print(name, [row for row in csv.reader(f)])
    tfrecord_filepaths = tf_factory.get_tfrecord_filepaths(dirpath="save/" + name)
    for label, data in tf_factory.generate_dataset(tfrecord_filepaths, ToyExample):
        print(int(label), [round(float(x), 6) for x in data])
