"""The combinations of actors: small casts that are explored completely.

W is a writer, A and B end its log, M and N make checkpoints, C compacts, D forgets a record, R and S replace the data
set, F and G write fixed sets, V is a reader, f a follower, and P and Q consume a source.
"""
