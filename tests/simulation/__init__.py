"""Whole worlds from a seed: see docs/design/2026-11-21-simulation.md. ``make simulate`` runs them."""
