"""Small helpers on top of `asyncrec._concurrency.tasks`; they know nothing of storage or records.

batches    the iterator over batches of every reader and stream
ahead      some things at a time, and one step ahead
lru_cache  values made once, however many tasks ask, within a bound
"""
