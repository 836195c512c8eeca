"""Keep shards in a folder on a local disk until they have been uploaded."""
