"""What fsspec reaches as a storage backend of asyncrec, to read from.

Installed, it answers to ``hf://``, ``sftp://``, ``hdfs://`` and other schemes that have no plugin of their own, to
those of installed filesystems, and to ``NAME+fsspec://`` for every filesystem of fsspec's. fsspec is imported when the
first such path is opened.
"""
