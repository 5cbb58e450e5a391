"""Measuring devices, a folder a family. They take a callable, a module or a tensor and return what was seen.

An instrument serves several pages and never makes its own model; a study that one page alone needs lives in that page's
experiment. Read ``describing`` first (names, lines and values, which the others use), then the family you came for:
``graph``, ``memory``, ``profiling``, ``gradients``, ``modes``.
"""
