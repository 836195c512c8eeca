"""Integrations with other frameworks: small modules that are imported on demand. Each has an extra of its name."""
