"""Whole jobs: a generator of examples becomes shuffled, sharded, described splits, which are read back by name.

``writer`` is the job, of which ``source`` runs the generator, ``examples`` makes records of what it yields,
``description`` says what all of them hold, ``shuffler`` orders them by the hash of their keys, and ``ordered`` writes
them to shards whose boundaries are known. ``sidecars`` are datum's two JSON files, ``reader`` reads a split back.
"""
