"""The cases of `StorageConformance`, grouped by subject into classes from which the kit inherits."""
