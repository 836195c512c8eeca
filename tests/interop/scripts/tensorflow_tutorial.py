# TensorFlow's tutorial "TFRecord and tf.train.Example": its helpers, writing in Python, and reading with tf.data.
import numpy as np
import tensorflow as tf


def _bytes_feature(value):
    """Returns a bytes_list from a string / byte."""
    if isinstance(value, type(tf.constant(0))):
        value = value.numpy()  # BytesList won't unpack a string from an EagerTensor.
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))


def _float_feature(value):
    """Returns a float_list from a float / double."""
    return tf.train.Feature(float_list=tf.train.FloatList(value=[value]))


def _int64_feature(value):
    """Returns an int64_list from a bool / enum / int / uint."""
    return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))


np.random.seed(0)
n_observations = 1000
feature0 = np.random.choice([False, True], n_observations)
feature1 = np.random.randint(0, 5, n_observations)
strings = np.array([b"cat", b"dog", b"chicken", b"horse", b"goat"])
feature2 = strings[feature1]
feature3 = np.random.randn(n_observations)


def serialize_example(feature0, feature1, feature2, feature3):
    feature = {
        "feature0": _int64_feature(int(feature0)),
        "feature1": _int64_feature(feature1),
        "feature2": _bytes_feature(feature2),
        "feature3": _float_feature(feature3),
    }
    example_proto = tf.train.Example(features=tf.train.Features(feature=feature))
    return example_proto.SerializeToString(deterministic=True)


filename = "test.tfrecord"
with tf.io.TFRecordWriter(filename) as writer:
    for i in range(n_observations):
        example = serialize_example(feature0[i], feature1[i], feature2[i], feature3[i])
        writer.write(example)

for index, raw_record in enumerate(tf.compat.v1.io.tf_record_iterator(filename)):
    if index % 100 == 0:
        example = tf.train.Example()
        example.ParseFromString(raw_record)
        for name in sorted(example.features.feature):
            print(name, example.features.feature[name])

try:
    list(tf.compat.v1.io.tf_record_iterator("nothing.tfrecord"))
except tf.errors.NotFoundError as error:
    print(type(error).__name__, error.error_code)

print(_bytes_feature(tf.io.serialize_tensor(tf.constant([1, 2]))))
feature_description = {
    "feature0": tf.io.FixedLenFeature([], tf.int64, default_value=0),
    "feature2": tf.io.FixedLenFeature([], tf.string, default_value=""),
}
for raw_record in tf.data.TFRecordDataset([filename]).take(3):
    parsed = tf.io.parse_single_example(raw_record, feature_description)
    print({name: parsed[name].numpy() for name in feature_description})

with tf.io.gfile.GFile(filename, "rb") as file:
    contents = file.read()
with tf.io.gfile.GFile("cut.tfrecord", "wb") as file:
    file.write(contents[:-1])
try:
    list(tf.data.TFRecordDataset("cut.tfrecord"))
except tf.errors.DataLossError as error:
    print(type(error).__name__)
