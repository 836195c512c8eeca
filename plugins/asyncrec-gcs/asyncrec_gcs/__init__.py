"""Google Cloud Storage as a storage backend of asyncrec.

Once installed, it serves ``gs://bucket/prefix`` (and ``gcs://``) wherever asyncrec accepts a path. The options are the
fields of `asyncrec_gcs.options.Options`. Nothing heavy is imported before the first such path is opened.
"""
