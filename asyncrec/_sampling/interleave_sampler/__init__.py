"""`InterleaveSampler` makes batches of deserialised examples from interleaved shards, ahead of the trainer.

sampler        `asyncrec.InterleaveSampler`
prefetch       a task that makes batches before they are needed
shard_folder   the shards in a folder
passes         repeated passes over the shards, each in its own order
batch_builder  combines the records of many passes into batches of examples
class_queues   batches of exactly P classes, K examples of each
deserializer   calls the user's function inline, in threads, or as coroutines
"""
