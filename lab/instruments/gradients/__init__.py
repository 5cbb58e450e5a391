"""What becomes of values and gradients on their way through the layers of a model.

Read ``norms`` first (numbers of one tensor), then ``layer_watch`` (every layer, both ways) and ``activation_watch``;
``first_nonfinite`` and ``clipping`` answer one question each, ``mean_field`` is the theory that the slopes are held against.
"""
