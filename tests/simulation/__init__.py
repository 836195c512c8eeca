"""Whole worlds from a seed: see docs/design/simulation.md. ``make simulate`` runs them."""
