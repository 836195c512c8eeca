"""S3, and every store that speaks its protocol, as a storage backend of asyncrec.

Installed, it answers to ``s3://bucket/prefix`` (and ``s3a://``) wherever asyncrec takes a path. The options are those
of `asyncrec_s3.options.Options`. Nothing here is imported before the first such path is opened.
"""
