"""The messages of tf.train.Example under a package name of our own; generated, see example.proto."""
