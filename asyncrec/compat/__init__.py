"""The names of five older systems are here, synchronous, on asyncrec's engine: change an import, and nothing else.

    tensorboardx      tensorboardX's RecordWriter and storage functions; its SummaryWriter on them
    tensorflow        TensorFlow's TFRecordWriter, TFRecordOptions, tf_record_iterator, and the messages of tf.train;
                      all other names are an installed TensorFlow's
    datum             datum's TFRecordWriter and load
    tfrecorder        TFRecorder's Example, tfrecordable and factory
    tfsimilarity      TensorFlow Similarity's TFRecordDatasetSampler

Each module says where it does not do as the old one did. New code does better with `asyncrec` itself, or without async
with `asyncrec.blocking`. These modules are frozen: faults are repaired, and nothing more of the old ones is added.
"""
