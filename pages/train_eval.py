"""Train and eval mode on the real modules: dropout, BatchNorm, the two switches, and a scan of a whole model."""

from components.frame.experiment import experiment_page
from components.frame.program_output import program_output
from components.train_eval import figures
from lab.experiments import train_eval

with experiment_page(
    train_eval,
    question="What changes between train and eval?",
    about="The real modules run in both modes on the same input, on {device}. The difference is the number.",
    in_sight=(
        *("view", "study", "module", "p", "treatment", "mode", "gradients", "model"),
        *("passes", "momentum", "shift", "scale", "batch", "batches"),
    ),
    cost="Every output is compared outside the timed calls. Saved tensors are counted as they are packed, and kept as they are.",
    blind="Not seen: random numbers drawn by a generator of the model's own, and modules that the forward never calls.",
) as page:
    for side in page.sides():
        figures.draw_figure(side.result, side.key, page.presenting)
    if page.side:
        with page.aside:
            program_output(page.side.result)
        with page.details:
            figures.draw_tables(page.side.result, page.side.key)
