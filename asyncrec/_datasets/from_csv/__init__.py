"""Data sets are made of the rows of a CSV file, split into train, eval and test."""
