"""Mixed precision: what a format's window leaves out of the gradients, a scaler at work, and lost updates."""

from components.frame.experiment import experiment_page
from components.frame.program_output import program_output
from components.mixed_precision import figures
from lab.experiments import mixed_precision

with experiment_page(
    mixed_precision,
    question="What does 16 bit lose?",
    about="Gradients of a real network on {device}, in float32 and in few bits, against the range that a format holds.",
    in_sight=("view", "format", "dtype", "init_scale", "depth", "activation", "bad_step", "clip"),
    cost="Gradients are counted after the backward pass. In a program every operation is looked at below autocast, some microseconds each.",
    blind="Not seen: what a GPU's tensor cores round inside a kernel, and lists of operations that CUDA treats otherwise.",
) as page:
    for side in page.sides():
        figures.draw_view(page, side)
    if page.side:
        with page.aside:
            program_output(page.side.result)
        with page.details:
            figures.draw_details(page.side)
