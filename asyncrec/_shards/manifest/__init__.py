"""The content of a data set: names, segments, and the manifest that is read from them."""
