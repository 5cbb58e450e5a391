"""One package a page, under the page's name: the names of ``lab.contract``, found by the name of the package.

In each, read ``schema`` first (what is asked and answered), then ``measure`` (the run), ``findings`` (what to notice) and
``lessons``; ``readings`` are single numbers of a result, ``script`` the program to take away.
"""

EXPLAINER = "autograd_graph"
"""It watches every operation of a program, so it is asked on every page why a program ended early."""
