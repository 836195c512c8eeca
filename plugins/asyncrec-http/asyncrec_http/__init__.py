"""Web servers as a storage backend of asyncrec, for reading.

Once installed, it serves ``https://`` and ``http://`` wherever asyncrec reads a path. The options are those of
`asyncrec_http.options.Options`. Nothing heavy is imported before the first such path is opened.
"""
