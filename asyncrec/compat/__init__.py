"""The synchronous APIs of five older systems, implemented with asyncrec. A program changes only its imports.

    tensorboardx      tensorboardX's RecordWriter and storage functions, also for its SummaryWriter
    tensorflow        TensorFlow's TFRecordWriter, TFRecordOptions, tf_record_iterator, and the messages of tf.train;
                      all other names come from an installed TensorFlow
    datum             datum's TFRecordWriter and load
    tfrecorder        TFRecorder's Example, tfrecordable and factory
    tfsimilarity      TensorFlow Similarity's TFRecordDatasetSampler

Each module documents how it differs from the original. New code should use `asyncrec` itself, or `asyncrec.blocking`
without async. These modules are frozen. Bugs are fixed, but no further features of the originals are added.
"""
