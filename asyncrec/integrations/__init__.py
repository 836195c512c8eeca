"""Integrations with other frameworks: small modules, imported on demand, with an extra of the same name each."""
