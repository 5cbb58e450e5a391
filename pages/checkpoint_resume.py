"""Stopping, saving, loading and going on: which lost state shows where, and what a file holds."""

from components.checkpoint_resume import figures
from components.frame.experiment import experiment_page
from components.frame.program_output import program_output
from lab.experiments import checkpoint_resume

with experiment_page(
    checkpoint_resume,
    question="Does it go on as if nothing had happened?",
    about="A training is stopped, saved, loaded into one that was built anew on {device}, and compared with one that never stopped.",
    in_sight=("view", "leave_out", "stop_after", "accumulate", "names", "order", "strict", "meta", "assign"),
    cost="Both trainings run the same operations. In a program, optimizers and schedules are kept until its end, and small ones copied to be compared.",
    blind="Not seen: state in a file of another program, and what a program restores without torch, such as a counter of its own.",
) as page:
    for side in page.sides():
        figures.draw_view(page, side)
    if page.side:
        with page.aside:
            program_output(page.side.result)
        with page.details:
            figures.draw_details(page.side)
