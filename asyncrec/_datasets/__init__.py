"""Make data sets from examples, shuffled, sharded and described, and read them back.

A package or module imports only from those above it in this list.

progress        the progress of the work
description     a description of all examples, as it is stored
sidecars        datum's two JSON files
shuffling       records in the order of their keys' hashes, sorted on disk
from_generator  `asyncrec.DatasetWriter`: writes the examples that a generator yields
from_csv        writes the examples that rows describe
reading         reads splits back
"""
