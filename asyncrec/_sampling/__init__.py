"""Read records for training: streams, random access, shuffled epochs and balanced batches. This package is private.

`asyncrec` exports the public names. Each package or module imports only from those above it in this list.

parameters          checks of the arguments of streams and samplers
record_set          a subset of the records of a data set
state_values        the values of a saved state, with checks of their types and ranges
stream_state        the envelope of every saved state
damage              the damaged ranges that were skipped, by shard
shard_versions      checks that a shard is still the version that was read
interleave          many shards as one stream, in tf.data's order
interleave_sampler  `asyncrec.InterleaveSampler`: batches of examples from such a stream
epochs              the order of an epoch over numbered records, and `asyncrec.ShuffledStream`
random_access       `asyncrec.open_dataset`: any record by its number or key
balanced_sampler    `asyncrec.ClassBalancedSampler`: batches by class from random access
"""
