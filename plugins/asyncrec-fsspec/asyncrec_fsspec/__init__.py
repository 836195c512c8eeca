"""A read-only storage backend for fsspec filesystems.

The plugin serves schemes without a dedicated plugin (``hf://``, ``sftp://``, ``hdfs://`` and others), the schemes of
installed filesystems, and ``NAME+fsspec://`` for every fsspec filesystem. fsspec is imported when the first such path
is opened.
"""
