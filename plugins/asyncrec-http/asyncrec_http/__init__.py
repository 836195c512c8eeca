"""Web servers as a read-only storage backend of asyncrec.

Once this plugin is installed, asyncrec accepts ``https://`` and ``http://`` wherever it reads a path.
`asyncrec_http.options.Options` lists the options. The HTTP client is imported only when the first such path is opened.
"""
