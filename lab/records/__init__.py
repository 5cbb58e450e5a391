"""What was measured, as plain frozen data without torch: every floor may import it.

A module a family, under the name of the instruments that fill it: ``graph``, ``memory``, ``profiling``, ``gradients``;
``program`` is what a visitor's program said and how it ended.
"""
