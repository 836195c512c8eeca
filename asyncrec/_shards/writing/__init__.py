"""Write data sets: the records of many tasks go to the open shards of one writer."""
