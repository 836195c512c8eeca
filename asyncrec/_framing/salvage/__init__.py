"""Salvage finds the records that are whole in a damaged stream, and lists what was lost."""
