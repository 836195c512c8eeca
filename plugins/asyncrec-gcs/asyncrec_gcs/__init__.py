"""Google Cloud Storage as a storage backend of asyncrec.

Once this plugin is installed, asyncrec accepts ``gs://bucket/prefix`` (and ``gcs://``) wherever it accepts a path.
`asyncrec_gcs.options.Options` lists the options. The client's library is imported only when the first such path is
opened.
"""
