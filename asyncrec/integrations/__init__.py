"""Integrations with other frameworks: small modules to import on demand. Each needs the extra of the same name."""
