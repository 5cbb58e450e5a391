"""Norms of gradients over depth and training, the theory beside them, and what clipping does."""

from components.frame.experiment import experiment_page
from components.frame.program_output import program_output
from components.gradient_flow import figures
from components.gradient_flow.tables import draw_tables
from lab.experiments import gradient_flow

with experiment_page(
    gradient_flow,
    question="Where does the gradient go?",
    about="A real network is trained for a few steps on {device}, and the gradient is measured at every layer. The slope over "
    "depth that theory predicts is drawn beside it.",
    in_sight=("family", "depth", "activation", "init", "clip"),
    keys=figures.KEYS,
    looks=figures.LOOKS,
    cost="Every layer's output and gradient are summarised in float64 as they pass; the cost of a watched step is under the figure.",
    blind="Not seen: gradients of parameters that no layer listed owns, such as those of normalisations inside a block; they do count in the total norm.",
) as page:
    drawn = [side for side in (page.pinned, page.side) if page.side and side]
    results = [side.result for side in drawn]
    if any(result.layers for result in results):
        picked = figures.pick("gf", results)
        if page.pair and picked.view == "Depth":
            a, b = page.pair
            figures.draw_pair(picked, a.result, b.result, b.key, presenter=page.presenting)
        for side in page.sides(together=picked.view == "Depth"):
            figures.draw(picked, side.result, side.key, results, presenter=page.presenting)
    if page.side:
        with page.aside:
            program_output(page.side.result)
        with page.details:
            draw_tables(page.side.result, page.side.key)
