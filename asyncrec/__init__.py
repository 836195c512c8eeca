"""asyncrec writes and reads TFRecord files from async Python."""
