"""Read records: bytes become frames, and frames become batches of records with their positions."""
