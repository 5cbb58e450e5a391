"""In one screen: what this is, a graph that walks by itself, and where to begin."""

from importlib import import_module

import streamlit as st

from components.autograd_graph.graph_view import graph_view
from components.frame.device_badge import device_badge, typed_code_badge
from components.frame.running import example
from components.frame.start import start
from components.frame.style import page_style
from components.navigation import PAGES
from lab.experiments import autograd_graph

FIRST_HOUR = (
    ("tensor_anatomy", "reshape of a transpose"),
    ("autograd_graph", "a value used twice"),
    ("autograd_graph", "view then in-place"),
    ("gradient_modes", "eval is not no_grad"),
    ("train_eval", "forgotten eval"),
    ("module_anatomy", "a list of layers"),
    ("gradient_flow", "sigmoid, 30 layers deep"),
    ("memory_timeline", "one training step, taken apart"),
    ("memory_timeline", "checkpoint every block"),
    ("op_profile", "the first step is not a step"),
)

page_style()
left, right = st.columns([4, 5], gap="large")
with left:
    st.title("PyTorch Internals Lab", anchor=False)
    st.markdown(
        "What does PyTorch really do? Say what you expect, measure it, and take the code with you.  \n"
        "Every number is measured on this machine at the moment that you ask."
    )
    with st.container(horizontal=True, gap="small"):
        for page in PAGES:
            st.page_link(page.script, label=page.title, icon=f":material/{page.icon}:", help=page.sentence)
    device_badge()
    typed_code_badge()
with right:
    shown = example(autograd_graph)
    if shown:
        graph_view(shown.result, program=shown.params.code, key="start-graph", height=540, playing=True)
start([(page, import_module(f"lab.experiments.{page.stem}")) for page in PAGES], FIRST_HOUR, first="autograd_graph")
