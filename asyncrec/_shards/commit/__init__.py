"""Shards are published, and segments of the manifest are committed, each in one step."""
