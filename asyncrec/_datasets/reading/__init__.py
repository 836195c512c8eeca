"""Read splits back, by their description from asyncrec or datum."""
