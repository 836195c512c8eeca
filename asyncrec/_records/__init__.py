"""One file or object of records: how it is written and read, the positions in it, and its torn end.

A package or module imports only from those above it in this list.

position      the place of a record, from which reading can continue
index         the text index with the beginning of each record
dataset_names the names of the objects of a data set
record_size   the sizes of records, and the limit for large ones
torn_end      the incomplete end of a file whose writer died
writing       `asyncrec.open_writer`, and the object writers that sharded writers use, too
reading       `asyncrec.open_reader`
"""
