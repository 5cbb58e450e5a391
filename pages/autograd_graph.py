"""The autograd graph of a program that the visitor types."""

from components.autograd_graph.graph_view import KEYS, graph_view
from components.autograd_graph.tables import draw_details
from components.frame.experiment import experiment_page
from components.frame.program_output import program_output
from lab.experiments import autograd_graph

with experiment_page(
    autograd_graph,
    question="What did autograd record?",
    about="Your program runs once on {device}. This is the graph that PyTorch built while it ran, and the backward "
    "pass in the order in which the engine walked it.",
    in_sight=("device", "seed"),
    keys=KEYS,
    cost="Hooks and the trace of operations are part of the run's time. Saved tensors are read without unpacking them. "
    "Where a fault has a repair, the repaired program is run as well, for its gradients and their differences.",
    blind="Not seen: work inside C++ that records no node, and operations under no_grad.",
) as page:
    for side in page.sides():
        graph_view(
            side.result,
            program=side.params.code,
            key=f"{side.key}-graph",
            height=640,
            presenter=page.presenting,
            sites=side.sites,
            beside=side.beside.result if side.beside else None,
            pointed_at=page.side is not None and side.job is page.side.job,
        )
    if page.side:
        with page.aside:
            program_output(page.side.result)
        with page.details:
            draw_details(page.side.result, page.side.key)
