"""Another process finishes what a dead writer left."""
