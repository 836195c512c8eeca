"""The messages of tf.train.Example under asyncrec's own package name. Generated; see example.proto."""
