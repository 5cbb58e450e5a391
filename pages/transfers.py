"""Transfers: the lines where a program waits for its device, and what copies cost."""

from components.frame.experiment import experiment_page
from components.frame.program_output import program_output
from components.transfers import figures
from lab.experiments import transfers

with experiment_page(
    transfers,
    question="Where does the host wait for the device?",
    about="The program runs on {device}; every operation that brings a value to the host is counted with its line.",
    in_sight=("view", "chunks", "read_early"),
    cost="Every operation is looked at by its name, about a microsecond each.",
    blind="Not seen: torch.cuda.synchronize, a pageable copy to a device, and whether a tensor of a CPU program would live on the device.",
) as page:
    for side in page.sides():
        figures.draw_view(page, side)
    if page.side:
        with page.aside:
            program_output(page.side.result)
        with page.details:
            figures.draw_details(page.side)
