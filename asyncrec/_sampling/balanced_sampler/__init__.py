"""`ClassBalancedSampler` makes batches balanced by class from a data set with random access.

sampler       `asyncrec.ClassBalancedSampler`
class_column  the class of every record, read once and stored next to the shards
"""
