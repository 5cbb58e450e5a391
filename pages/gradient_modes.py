"""The modes in which a program ran, line by line, and which later use of a tensor fails."""

from components.frame.experiment import experiment_page
from components.frame.program_output import program_output
from components.gradient_modes import figures
from lab.experiments import gradient_modes

with experiment_page(
    gradient_modes,
    question="Who records, and what fails later?",
    about="The program runs once on {device}; every line is shown in the mode in which it ran, every tensor from the line where it was born.",
    in_sight=("view", "mode", "outer", "eval_mode", "width", "batch"),
    keys=figures.KEYS,
    cost="Lines and operations are noted while the program runs, some microseconds each. Times are the shortest of rounds in which all modes take turns.",
    blind="Not seen: modes of other threads, forward-mode differentiation, and operations inside C++.",
) as page:
    for side in page.sides():
        figures.draw_view(page, side)
    if page.side:
        with page.aside:
            program_output(page.side.result)
        with page.details:
            figures.draw_details(page.side)
