"""Write and read one file or object of records.

A package or module imports only from those listed above it.

position      the place of a record, from which reading can continue
index         the text index with the offset of each record
dataset_names the names of a data set's objects record_size   the sizes of records, and the limit for large ones
torn_end      the incomplete end of a file whose writer died writing       `asyncrec.open_writer`, and the object
writers that sharded writers also use reading       `asyncrec.open_reader`
"""
