"""Integrations with other frameworks: small modules to import on demand, each with an extra of the same name."""
