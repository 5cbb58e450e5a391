"""Fine-tuning: what moved and what did not, tensor by tensor, against what was meant."""

from components.fine_tuning import figures
from components.frame.experiment import experiment_page
from components.frame.program_output import program_output
from lab.experiments import fine_tuning

with experiment_page(
    fine_tuning,
    question="What moved, and what did not?",
    about="A network that knows one task learns another on {device}. Every tensor is compared with a copy from before.",
    in_sight=("view", "recipe", "rank", "steps", "far", "rows", "optimizer"),
    cost="Tensors are copied before the first step; in a program up to 8 million numbers, and names are looked up at 30 steps.",
    blind="Not seen: tensors that a program keeps under no name, and what other threads train.",
) as page:
    for side in page.sides():
        figures.draw_view(page, side)
    if page.side:
        with page.aside:
            program_output(page.side.result)
        with page.details:
            figures.draw_details(page.side)
