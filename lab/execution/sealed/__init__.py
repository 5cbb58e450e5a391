"""One confined process for each program that a visitor typed.

From outside in: ``route`` watches a run, ``spares`` keeps children ready, ``children`` talks to the ``zygote`` that forks them
after ``preload``, ``child`` runs the program behind the walls of ``confine`` (``seccomp``, ``syscalls``). ``frames`` is how they
talk, ``self_check`` tries the walls.
"""
