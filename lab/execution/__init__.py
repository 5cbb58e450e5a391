"""How a run happens and what contains it. The web process computes nothing.

Read ``executor`` first, the only module that pages and the command line know. ``jobs`` is what is asked and answered,
``routes`` says where a request runs: in ``workers`` (our own experiments) or ``sealed`` (visitors' programs). ``perform`` is
one run inside such a process; ``store``, ``host`` and ``faults`` are what the executor keeps, knows and says.
"""
