"""Small helpers on top of `asyncrec._concurrency.tasks`, independent of storage and records.

batches          the batch iterator of every reader and stream
map, read_ahead  concurrent calls; fetching ahead of the consumer
lru_cache        a bounded cache that makes each value only once, even if many tasks request it
"""
