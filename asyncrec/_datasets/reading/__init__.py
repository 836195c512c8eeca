"""Read splits back, using the descriptions that asyncrec or datum wrote."""
