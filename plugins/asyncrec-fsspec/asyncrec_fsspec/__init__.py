"""A read-only storage backend of asyncrec for fsspec filesystems.

The plugin serves ``hf://``, ``sftp://``, ``hdfs://`` and other schemes that have no plugin of their own, the schemes of
installed filesystems, and ``NAME+fsspec://`` for every fsspec filesystem. fsspec is imported when the first such path
is opened.
"""
