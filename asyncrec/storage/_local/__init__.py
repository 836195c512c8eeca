"""Files on a local disk: the storage, its sinks and sources, and their calls of the file system."""
