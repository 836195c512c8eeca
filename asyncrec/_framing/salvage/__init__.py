"""A damaged stream becomes the records that are whole, and a list of what was lost."""
