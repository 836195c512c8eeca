"""Other people's frameworks: small modules, each imported on demand, with the extra of its name."""
