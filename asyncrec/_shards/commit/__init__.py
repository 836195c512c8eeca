"""Publish shards and commit segments of the manifest, each in one step."""
