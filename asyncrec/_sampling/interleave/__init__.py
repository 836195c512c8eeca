"""Merge the records of many shards into one stream, in the order of tf.data's ``interleave``.

stream          `asyncrec.interleave` and `asyncrec.InterleaveStream`
single_pass     one pass over the shards: interleaved, then shuffled in a buffer
interleaver     reads the shards of a cycle and puts their records in order
cycle_shards    opens the shards of a cycle, which share one memory budget, and reads their batches
order           tf.data's order, deterministic or not: the next input, and the number of records to take; no I/O
rounds          arranges the records of complete rounds with slices
shard_inputs    the shards of a stream, opened as they are needed
provenance      the shard and position of each record
shuffle_buffer  `asyncrec.ShuffleBuffer`
"""
