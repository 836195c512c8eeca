"""The cases of `StorageConformance`, by subject; each subject is a class that the kit inherits."""
