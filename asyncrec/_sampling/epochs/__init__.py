"""The order of one epoch over numbered records, and each worker's part of it.

shuffled_stream  `asyncrec.ShuffledStream`
shuffled_order   the numbers of the records at positions of any epoch
epoch_order      which record stands at which position, pure
permutation      permutations by key, the same for ever
worker_batches   which batches are a worker's
"""
