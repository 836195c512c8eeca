"""Write, describe and recover data sets of many shards, and protect them from conflicting writers.

A package imports only from the packages above it in this list.

manifest    what a data set contains, and how its objects are named
journal     the files that a job keeps on a disk, from which its records can be recovered
commit      publish shards, and commit segments
ownership   decide which job may write, replace or remove an object
spool       upload the shards that wait in a local folder
recovery    `asyncrec.recover`
writing     `asyncrec.open_sharded_writer`, and the other ways to write shards
"""
