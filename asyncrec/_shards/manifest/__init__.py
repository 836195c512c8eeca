"""What a data set holds: names, segments, and the manifest that is read from them."""
