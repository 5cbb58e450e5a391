"""What experiments run on: models, batches, losses, training steps. Instruments never import it.

``models`` and ``training_step`` serve the pages on memory and speed, with ``checkpointing`` and ``profiled_step`` beside
them; ``networks`` are deep networks for a gradient; ``mode_models``, ``norm_batches`` and ``small_task`` have something
that train() and eval() change.
"""
