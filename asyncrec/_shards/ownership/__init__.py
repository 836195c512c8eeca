"""Determine which job owns which names and shards, with claims, marks, tombstones and a census of jobs."""
