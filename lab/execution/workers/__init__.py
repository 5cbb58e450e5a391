"""Warm processes for the lab's own experiments.

``route`` chooses and watches a worker, ``process`` is its outer end, ``worker`` what runs inside.
"""
