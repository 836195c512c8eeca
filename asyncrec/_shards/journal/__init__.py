"""The journal of a writer: a copy on local disk of what no store has yet, from which records are recovered."""
