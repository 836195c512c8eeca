"""The order of an epoch over numbered records, and its division among workers.

shuffled_stream   `asyncrec.ShuffledStream`
shuffled_order    the numbers of the records at given positions of any epoch
epoch_order       the record at each position of an epoch; no I/O
permutation       permutations that depend only on a key, in every release
windows_ahead     reads windows of records ahead in many concurrent parts, which may belong to different windows
worker_batches    the batches of each worker; no I/O
read_ahead_items  the items that a `ShuffledStream` or a `ClassBalancedSampler` has read ahead
"""
