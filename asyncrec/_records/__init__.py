"""One file or object of records: how it is written and read, the positions in it, and its torn end.

A package or module imports only from those above it in this list.

position      where a record stands, so that reading can be taken up there
index         where each record begins, as text
dataset_names where a data set of a name is found
record_size   when a record is large
torn_end      what a writer that died left behind its last whole record
writing       `asyncrec.open_writer`, and the object writers that sharded writers use, too
reading       `asyncrec.open_reader`
"""
