"""Publish shards, and commit segments of the manifest. Each shard or segment appears in full or not at all."""
