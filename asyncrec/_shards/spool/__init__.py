"""The spool: a folder on a local disk that keeps shards until they are uploaded."""
