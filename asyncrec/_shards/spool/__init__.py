"""Shards stay in a folder on local disk until they have been uploaded."""
