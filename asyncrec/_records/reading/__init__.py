"""Read records: decode bytes into frames, and frames into batches of records with their positions."""
