"""Decide which writer may write, replace or remove which shards: claims, marks, tombstones and the census of jobs."""
