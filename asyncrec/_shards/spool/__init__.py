"""The spool: a folder on a local disk in which shards are kept until they are uploaded."""
