"""Data sets are made here of what makes examples, shuffled, sharded and described; and they are read back.

Of `DatasetWriter`, in ``writer``: ``source`` runs the generator, ``taker`` keeps what it yields, made ready by
``examples`` and described by ``description``; ``shuffler`` orders the records by the hashes of their keys, on disk in
``buckets``, and ``ordered`` writes them to shards whose boundaries are known. ``sidecars`` are datum's two JSON files,
``reader`` reads splits back. ``tabular`` makes data sets of rows that describe examples.
"""
