"""Batches of deserialised examples from interleaved shards, made ahead of the trainer.

sampler        `asyncrec.InterleaveSampler`
prefetch       a task that makes batches ahead
shard_folder   the shards, found in a folder
passes         pass after pass over them
batch_builder  records of many passes to batches of examples
class_queues   batches of exactly P classes, K examples of each
deserializer   the user's function: inline, in threads, or as coroutines
"""
