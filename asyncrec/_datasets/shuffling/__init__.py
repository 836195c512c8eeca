"""Shuffle records by the hashes of their keys, in bounded memory: an external sort.

shuffler  `HashShuffler`, and a table of the keys already added
buckets   the temporary files of the sort, one for each first byte of a hash
"""
