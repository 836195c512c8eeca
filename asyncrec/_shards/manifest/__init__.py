"""What a data set contains: the names of its objects, the segments, and the manifest that is computed from them."""
