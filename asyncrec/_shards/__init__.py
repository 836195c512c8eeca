"""A data set of many shards is written, described, recovered, and protected from conflicting writers.

A package imports only from those above it in this list.

manifest    what a data set holds, and what its objects are called
journal     what a job leaves on a disk, to be recovered
commit      shards are published, and segments committed
ownership   who may write, replace or remove what
spool       shards wait in a local folder to be uploaded
recovery    `asyncrec.recover`
writing     `asyncrec.open_sharded_writer`, and the other ways to write shards
"""
