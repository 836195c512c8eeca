"""A stand-in for Kafka, for the consumer example."""
