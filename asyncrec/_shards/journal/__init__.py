"""Keep a writer's journal: a local copy of records that are not in a store yet, so that they can be recovered."""
