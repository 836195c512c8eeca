"""Simulations of whole worlds from a seed, run by ``make simulate``. See docs/design/simulation.md."""
