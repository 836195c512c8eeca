"""Writers of data sets. A writer distributes the records of many tasks over its open shards."""
