"""Publish shards, and commit segments of the manifest. Each of them appears complete or not at all."""
