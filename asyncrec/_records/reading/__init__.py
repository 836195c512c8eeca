"""Records are read: bytes become frames, frames become batches of records with their positions."""
