"""Write, describe and recover data sets of many shards, and protect them from conflicting writers.

A package imports only from the packages above it in this list.

manifest    the content of a data set, and the names of its objects
journal     the files that a job keeps on a disk, from which it can be recovered
commit      publishing shards, and committing segments
ownership   which job may write, replace or remove which objects
spool       shards that wait in a local folder to be uploaded
recovery    `asyncrec.recover`
writing     `asyncrec.open_sharded_writer`, and the other ways to write shards
"""
