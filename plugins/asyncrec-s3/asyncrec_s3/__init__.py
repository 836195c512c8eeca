"""S3, and every store that speaks its protocol, as a storage backend of asyncrec.

Once this plugin is installed, asyncrec accepts ``s3://bucket/prefix`` (and ``s3a://``) wherever it accepts a path.
`asyncrec_s3.options.Options` lists the options. The AWS SDK is imported only when the first such path is opened.
"""
