"""The names of five older systems, synchronous, on asyncrec's engine: change an import, and nothing else.

    tensorboardx      tensorboardX's RecordWriter and storage functions; its SummaryWriter on them
    tensorflow        TensorFlow's TFRecordWriter, TFRecordOptions, tf_record_iterator, and the messages of tf.train;
                      all other names are an installed TensorFlow's
    datum             datum's TFRecordWriter and load
    tfrecorder        TFRecorder's Example, tfrecordable and factory
    tfsimilarity      TensorFlow Similarity's TFRecordDatasetSampler

Each module documents how it differs from the old one. New code should use `asyncrec` itself, or `asyncrec.blocking`
without async. These modules are frozen: faults are fixed, but no more features of the old ones are added.
"""
