"""Simulate machines, processes and a store from a random seed; see docs/design/simulation.md and ``make simulate``."""
