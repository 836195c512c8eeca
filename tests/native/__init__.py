"""The C of asyncrec against the Python beside it. ``make sanitize`` runs them under sanitizers, for longer."""
