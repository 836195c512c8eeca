"""Shuffle records by the hashes of their keys, in bounded memory: an external sort.

shuffler  `HashShuffler`, and a table of the keys that were added
buckets   the files through which it sorts, one for each first byte of a hash
"""
