"""What is alive at every operation of a training step, whose it is, and what would make it less."""

from components.frame.experiment import experiment_page
from components.frame.program_output import program_output
from components.memory_timeline import figures
from components.memory_timeline.timeline import KEYS
from lab.experiments import memory_timeline

with experiment_page(
    memory_timeline,
    question="What fills the memory?",
    about="A model is trained for a few steps on {device}, and every tensor is followed from its birth to its death.",
    live=False,
    in_sight=("model", "batch", "precision", "checkpoint", "predict"),
    keys=KEYS,
    looks={"view": tuple(figures.VIEWS)},
    cost="Memory and time are measured in runs of their own; the tracked run is one to five times as slow as a bare one.",
    blind="Not seen: workspaces inside one operator, oneDNN's opaque tensors, autograd's own nodes, and on a GPU the context.",
) as page:
    view = figures.choose_view(page.state.key("view")) if page.side else "timeline"
    for side in page.sides():
        figures.draw_view(view, side.result, side.key, page.presenting)
    if page.side:
        with page.aside:
            program_output(page.side.result)
        with page.details:
            figures.draw_details(page.side.result, page.side.key)
