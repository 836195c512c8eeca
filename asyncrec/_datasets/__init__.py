"""Whole jobs: from what makes examples to data sets that are shuffled, sharded and described, and back.

Of `DatasetWriter`, in ``writer``: ``source`` runs the generator, ``taker`` keeps what it yields, made ready by
``examples`` and described by ``description``; ``shuffler`` orders the records by the hashes of their keys, on disk in
``buckets``, and ``ordered`` writes them to shards whose boundaries are known. ``sidecars`` are datum's two JSON files,
``reader`` reads splits back. ``tabular`` makes data sets of rows that describe examples.
"""
