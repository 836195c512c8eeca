"""A data set of many shards is written, described, recovered, and kept from two who would write the same of it.

A room imports from those above it in this list.

manifest    what a data set holds, and what its objects are called
journal     what a job leaves on a disk for whoever recovers it
commit      shards are published, and segments committed
ownership   who may write, replace or remove what
spool       shards wait in a local folder to be uploaded
recovery    `asyncrec.recover`
writing     `asyncrec.open_sharded_writer`, and the other ways to write shards
"""
