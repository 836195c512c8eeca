"""Make data sets from examples, shuffled, sharded and described, and read them back.

A package or module imports only from those above it in this list.

progress        how much of the work is done
description     what examples are, as it is stored
sidecars        datum's two JSON files
shuffling       records in the order of their keys' hashes, sorted on disk
from_generator  `asyncrec.DatasetWriter`: the examples that a generator yields
from_csv        rows that describe examples
reading         splits, read back
"""
