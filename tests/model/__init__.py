"""The protocol of a data set as a program that explores every order of its steps; `docs/protocol.md` has it in words.

    objects, store, rules     what lies in a store; what a request does; which rules are in force
    look, questions           what a process knows from a list, and what it asks of that
    winning, writer, ender, turns, checkpoints, readers, sources, folder
                              the actors
    judge                     the invariants, in every state
    states, engine            the exploration
    casts, configurations     who meets whom
    run                       `make model`

The end of the page lists what the model does not cover.
"""
