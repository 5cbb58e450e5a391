"""The graph that autograd holds, and the engine that walks it.

Read ``book`` first: it writes nodes down while they are born. ``program_trace`` calls it at every operation of a program,
``storages`` tells pieces of memory apart, ``engine_calls`` sees a backward coming and ``backward_trace`` watches it, ``cuts``
finds where the graph ends too early, and ``to_records`` makes plain data of it all.

Beside the nodes stands what has none: ``tensor_log`` knows which operation made which tensor from which others, ``recorder``
fills it and ``events`` with writes, refusals, hooks and steps, ``nonfinite`` finds where NaN began, ``slopes`` repeats small
operations in float64, and ``trail`` makes plain data of the way to a loss.
"""
