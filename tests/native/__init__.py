"""asyncrec's C code, compared with its Python counterpart. ``make sanitize`` runs more cases with sanitizers."""
