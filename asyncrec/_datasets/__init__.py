"""Shuffle examples, write them as sharded data sets with a description of their features, and read them back.

Each package or module imports only from those listed above it.

progress        shows a progress bar
description     describes the features of all examples
sidecars        writes datum's two JSON files
shuffling       sorts records by the hashes of their keys, on disk
from_generator  `asyncrec.DatasetWriter`: writes the examples that a generator yields
from_csv        writes the examples that the rows of a CSV file describe
reading         reads splits back
"""
