"""Writers of data sets, which distribute the records of many tasks over their open shards."""
