"""Files on a local disk: the storage, its sinks and sources, and what it asks of the file system."""
