"""Files on a local disk: the storage, its sinks and sources, and their file system calls."""
