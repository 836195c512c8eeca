"""Keep a writer's journal, a local copy of records that no store has yet, from which they are recovered."""
