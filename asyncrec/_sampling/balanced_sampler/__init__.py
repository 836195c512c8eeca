"""`ClassBalancedSampler` makes batches balanced by class from a data set with random access.

sampler       `asyncrec.ClassBalancedSampler`
order         which records make up which batch, pure
class_column  the class of every record, read once and kept in the store
"""
