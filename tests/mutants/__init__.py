"""asyncrec, broken on purpose, one small change at a time: what no test notices, no test holds.

``make mutants`` runs it: ``run`` draws mutants (``changes``) of the modules that ``targets`` names, runs each in a copy
of the tree (``scratch``) against the tests that reach its lines (``reach``), and remembers what came of it
(``book``). ``equivalent.txt`` lists those that change nothing that anybody could see, each with the reason.
"""
