"""Where a training step spends its time."""

import streamlit as st

from components.frame.experiment import experiment_page
from components.frame.program_output import program_output
from components.op_profile.trace_timeline import KEYS
from components.op_profile.views import VIEWS, chosen_view, difference, draw_view
from lab.experiments import op_profile

with experiment_page(
    op_profile,
    question="Where does the step spend its time?",
    about="A training step runs on {device}, with and without the profiler in turn. Host time of each operator, and what it adds up to.",
    live=False,
    in_sight=("model", "layers", "width", "batch", "optimizer_impl"),
    keys=KEYS,
    looks={"view": VIEWS},
    cost="The profiler adds its own time to every event: compare with the bare step. Modules and lines, and Python's "
    "lines, come from steps of their own, whose times are used for nothing else.",
    blind="Not seen: work inside an operator, other threads of a CPU kernel, and what other processes do meanwhile.",
) as page:
    if page.side:
        view = chosen_view(page.state)
        for side in page.sides():
            draw_view(view, page, side)
        with page.details:
            difference(page)
        with page.aside:
            program_output(page.side.result)
            if page.side.result.compile_s:
                st.caption(f"First step with compilation: {page.side.result.compile_s:.1f} s.")
