"""Ownership of names and shards: claims, marks, tombstones and the census of jobs."""
