"""Integrations with other frameworks: small modules, imported on demand, each with the extra of its name."""
