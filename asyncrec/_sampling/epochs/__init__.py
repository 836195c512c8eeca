"""The order of an epoch over numbered records, and its division among workers.

shuffled_stream   `asyncrec.ShuffledStream`
shuffled_order    the numbers of the records at given positions of any epoch
epoch_order       the record at each position of an epoch; no I/O
permutation       permutations that depend only on a key, in every release
windows_ahead     windows of records, read ahead in many concurrent parts, across the borders of windows
worker_batches    the batches of each worker; no I/O
read_ahead_items  the items that a stream over numbered records or a balanced sampler has read ahead
"""
