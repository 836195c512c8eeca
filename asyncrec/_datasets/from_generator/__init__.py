"""Make data sets from the examples that a generator yields: shuffled, sharded and described."""
