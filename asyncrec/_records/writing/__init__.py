"""Write records: producers fill batches in memory, and one task for each object writes them."""
