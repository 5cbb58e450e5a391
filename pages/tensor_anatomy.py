"""What the lines of a program did to tensors and their memory; panels on dtypes, precision, NumPy, devices and data."""

from components.frame.experiment import experiment_page
from components.frame.program_output import program_output
from components.tensor_anatomy import figures
from components.tensor_anatomy.memory_strips import KEYS
from lab.experiments import tensor_anatomy

with experiment_page(
    tensor_anatomy,
    question="What is this tensor, and whose memory is it?",
    about="Every operation is measured on {device}: which memory its result has, who wrote into it, and what it is now.",
    in_sight=("view", "dtype_a", "dtype_b", "count", "order", "inner", "accumulate"),
    keys=KEYS,
    cost="Each operation of a program takes some 0.1 ms more while it is watched; of a long loop only a part is.",
    blind="Not seen: memory inside one operator, sparse and nested layouts, and what happens inside C++ on other threads.",
) as page:
    for side in page.sides():
        figures.draw_view(page, side)
    if page.side:
        with page.aside:
            program_output(page.side.result)
        with page.details:
            figures.draw_details(page.side)
