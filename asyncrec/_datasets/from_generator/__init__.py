"""Make data sets from the examples that a generator yields: shuffle and shard them, and describe their features."""
