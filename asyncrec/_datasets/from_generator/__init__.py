"""Data sets are made of the examples that a generator yields: shuffled, sharded and described."""
