"""Make data sets from the rows of a CSV file, split into train, eval and test."""
