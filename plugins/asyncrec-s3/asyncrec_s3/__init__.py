"""A storage backend for S3 and all stores that are compatible with it.

Once this plugin is installed, asyncrec accepts ``s3://bucket/prefix`` (and ``s3a://``) wherever it accepts a path. The
options are those of `asyncrec_s3.options.Options`. The AWS SDK is imported when the first such path is opened.
"""
