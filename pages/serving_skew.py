"""Two paths over the same golden rows: the first stage where serving departs from training."""

from components.frame.experiment import experiment_page
from components.frame.program_output import program_output
from components.serving_skew import figures
from lab.experiments import serving_skew

with experiment_page(
    serving_skew,
    question="Works in training, fails in serving: where do they part?",
    about="The same golden rows go through the training path and the serving path on {device}; every stage is compared in order.",
    in_sight=("view", "skew", "golden_rows", "golden", "age_shift", "tolerance"),
    cost="Outputs of modules are copied by hooks while both paths run. Weights and modes are read before.",
    blind="Not seen: what happens before the rows, and stages that only one of the paths names.",
) as page:
    for side in page.sides():
        figures.draw_view(page, side)
    if page.side:
        with page.aside:
            program_output(page.side.result)
        with page.details:
            figures.draw_details(page.side)
