"""A read-only storage backend of asyncrec for the filesystems of fsspec.

The plugin serves ``hf://``, ``sftp://``, ``hdfs://`` and other schemes without a plugin of their own, the schemes of
installed filesystems, and ``NAME+fsspec://`` for every filesystem of fsspec. fsspec is imported when the first such
path is opened.
"""
