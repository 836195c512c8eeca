"""Which writer may write, replace or remove which shards: claims, marks, tombstones, and which jobs are alive."""
