"""A storage backend for Google Cloud Storage.

Once this plugin is installed, asyncrec accepts ``gs://bucket/prefix`` (and ``gcs://``) wherever it accepts a path. The
options are those of `asyncrec_gcs.options.Options`. The client library is imported when the first such path is opened.
"""
