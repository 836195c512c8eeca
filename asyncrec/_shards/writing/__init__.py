"""The writers of data sets: records of many tasks go to the open shards of one writer."""
