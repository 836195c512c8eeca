"""The synchronous APIs of five older systems, on asyncrec's engine. Programs need only change their imports.

    tensorboardx      tensorboardX's RecordWriter and storage functions, also for its SummaryWriter
    tensorflow        TensorFlow's TFRecordWriter, TFRecordOptions, tf_record_iterator, and the messages of tf.train;
                      all other names come from an installed TensorFlow
    datum             datum's TFRecordWriter and load
    tfrecorder        TFRecorder's Example, tfrecordable and factory
    tfsimilarity      TensorFlow Similarity's TFRecordDatasetSampler

Each module documents how it differs from the original. New code should use `asyncrec` itself, or, without async,
`asyncrec.blocking`. These modules are frozen: bugs are fixed, but no further features of the originals are added.
"""
