"""A read-only storage backend for web servers.

Once this plugin is installed, asyncrec accepts ``https://`` and ``http://`` wherever it reads a path. The options are
those of `asyncrec_http.options.Options`. The HTTP client is imported when the first such path is opened.
"""
