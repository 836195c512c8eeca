"""What the example of a consumer has beside it."""
