"""The cases of `StorageConformance` by subject. Each subject is a class from which the kit inherits."""
