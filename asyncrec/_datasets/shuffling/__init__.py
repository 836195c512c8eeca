"""Shuffle records by the hashes of their keys, in bounded memory: an external sort.

shuffler  `HashShuffler`, and which keys came before
buckets   the files it sorts through, one for each first byte of a hash
"""
