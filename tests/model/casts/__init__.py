"""Who meets whom: small casts of actors, each explored whole.

W writes, A and B end it, M and N make checkpoints, C compacts, D forgets, R and S replace, F and G are fixed sets, V
reads, f follows, P and Q continue a source.
"""
