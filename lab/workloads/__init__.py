"""What experiments run on: models, batches, losses, training steps. Instruments never import it.

Read ``models`` and ``training_step`` first: the models and the step of the pages on memory and speed, with
``checkpointing`` and ``profiled_step`` beside them. ``optimizers`` and ``precision`` are the tables behind the knobs of
those names, for the measured step and for the script that repeats it. ``deep_networks`` send a gradient through many
layers; ``mode_models``, ``channel_batches`` and ``spirals`` have something that train() and eval() change.
"""
