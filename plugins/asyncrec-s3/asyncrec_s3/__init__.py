"""S3, and every store that speaks its protocol, as a storage backend of asyncrec.

Once installed, it serves ``s3://bucket/prefix`` (and ``s3a://``) wherever asyncrec accepts a path. The options are the
fields of `asyncrec_s3.options.Options`. Nothing here is imported before the first such path is opened.
"""
