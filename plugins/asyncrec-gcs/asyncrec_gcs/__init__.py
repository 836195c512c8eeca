"""Google Cloud Storage as a storage backend of asyncrec.

Installed, it answers to ``gs://bucket/prefix`` (and ``gcs://``) wherever asyncrec takes a path. The options are those
of `asyncrec_gcs.options.Options`. Nothing heavy is imported before the first such path is opened.
"""
