"""A page around the example experiment, as short as a real one."""

import streamlit as st

from components.frame.experiment import experiment_page
from tests.components.frame import example_experiment

with experiment_page(
    example_experiment,
    question="How large is the product?",
    about="Measured on {device}.",
    live=st.session_state.get("test-live", True),
    dtype="float64",
    cost="Costs nothing.",
    blind="Sees all.",
) as page:
    for side in page.sides():
        st.text(f"figure {side.key}: {side.result.product}")
