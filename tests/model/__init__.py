"""A model of the data set protocol: a program that explores every order of its steps.

`docs/protocol.md` describes the protocol in prose, and lists at its end what the model does not cover.

    objects, store, rules     the objects in a store; what each request does; which rules are in force
    look, questions           what a process knows from a listing, and the questions that it asks about it
    winning, writer, ender, turns, checkpoints, readers, sources, folder
                              the actors
    judge                     the invariants, which are checked in every state
    states, engine            the exploration
    casts, configurations     which actors are combined
    run                       `make model`
"""
