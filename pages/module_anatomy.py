"""What a module registers, which hooks run around it, and what loading a state dict does."""

from components.frame.experiment import experiment_page
from components.frame.program_output import program_output
from components.module_anatomy import figures
from lab.experiments import module_anatomy

with experiment_page(
    module_anatomy,
    question="What does this module own?",
    about="The program runs on {device}; its modules are walked, a copy is converted, one step is made, and each mark is what happened.",
    in_sight=("view", "action", "call", "hook_kinds", "file", "strict", "assign"),
    keys=figures.KEYS,
    cost="The program runs with notes on what is assigned, a few microseconds each. The step and the pass with hooks come after it has ended.",
    blind="Not seen: what is deeper than three containers, in objects of other libraries, or written into a module from C.",
) as page:
    for side in page.sides():
        figures.draw_view(side.result, side.key, page.presenting)
    if page.side:
        with page.aside:
            program_output(page.side.result)
        with page.details:
            figures.draw_details(page.side.result, page.side.key)
