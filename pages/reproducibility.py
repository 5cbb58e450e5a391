"""Reproducibility: two runs recorded operation by operation, the first that differs, and what pins it."""

from components.frame.experiment import experiment_page
from components.frame.program_output import program_output
from components.reproducibility import figures
from lab.experiments import reproducibility

with experiment_page(
    reproducibility,
    question="Where do two runs part?",
    about="Two runs on {device}, recorded operation by operation with the bits of every result, aligned and compared.",
    in_sight=("view", "change", "steps", "repeats"),
    cost="Recording hashes every result: about three times the time of a bare step. The gap over steps is measured without it.",
    blind="Not seen: results above 200,000 elements are compared by hash alone; other hosts, and what a GPU's atomics do.",
) as page:
    for side in page.sides():
        figures.draw_view(page, side)
    if page.side:
        with page.aside:
            program_output(page.side.result)
        with page.details:
            figures.draw_details(page.side)
