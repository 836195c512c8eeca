"""Read splits back, by asyncrec's description of them or by datum's."""
