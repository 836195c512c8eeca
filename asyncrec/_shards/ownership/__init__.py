"""Which writer may write, replace or remove what: claims, marks, tombstones, and who is alive."""
