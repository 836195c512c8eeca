"""This room orders an epoch over numbered records, and says which part of it is each worker's.

shuffled_stream   `asyncrec.ShuffledStream`
shuffled_order    the numbers of the records at positions of any epoch
epoch_order       which record stands at which position, pure
permutation       permutations by key, the same for ever
windows_ahead     windows of records, read many parts at a time across their borders
worker_batches    which batches are a worker's
read_ahead_items  what a stream over numbered records has read ahead; the balanced sampler's too
"""
