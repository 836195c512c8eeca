# Shards as in TensorFlow 1's scripts for image sets: several writers, none in a `with`, one never closed.
import numpy as np
import tensorflow as tf

writer_of = tf.compat.v1.python_io.TFRecordWriter
options = tf.compat.v1.io.TFRecordOptions(tf.compat.v1.io.TFRecordCompressionType.GZIP)
print(options.compression_type, tf.compat.v1.io.TFRecordOptions.get_compression_type_string(options))


def convert_to_example(filename, image, label, text):
    feature = {
        "image/height": tf.train.Feature(int64_list=tf.train.Int64List(value=[image.shape[0]])),
        "image/class/label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
        "image/class/text": tf.train.Feature(bytes_list=tf.train.BytesList(value=[tf.compat.as_bytes(text)])),
        "image/filename": tf.train.Feature(bytes_list=tf.train.BytesList(value=[tf.compat.as_bytes(filename)])),
        "image/mean": tf.train.Feature(float_list=tf.train.FloatList(value=image.mean(axis=0).mean(axis=0))),
        "image/encoded": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image.tobytes()])),
    }
    return tf.train.Example(features=tf.train.Features(feature=feature))


random = np.random.RandomState(1)
writers = [writer_of(f"train-{shard:05d}-of-00004") for shard in range(4)]
for number in range(40):
    image = random.randint(0, 255, (8, 8, 3)).astype(np.uint8)
    example = convert_to_example(f"image{number}.png", image, number % 3, f"class {number % 3}")
    writers[number % 4].write(example.SerializeToString(deterministic=True))
    if number == 20:
        writers[0].flush()
        print(sum(1 for _ in tf.compat.v1.io.tf_record_iterator("train-00000-of-00004")))
for writer in writers[:3]:
    writer.close()

with tf.io.TFRecordWriter("packed", options) as packed:
    for number in range(100):
        packed.write(b"%d" % number)
print(list(tf.compat.v1.io.tf_record_iterator("packed", options))[::25])
try:
    writers[0].write(b"too late")
except tf.errors.FailedPreconditionError:
    print("closed")
