"""Entry: ``streamlit run lab/Home.py``. Puts the repository on the path, then routes."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Streamlit puts lab/ on the path, where our modules could shadow the standard library's.
sys.path[:] = [str(ROOT), *(p for p in sys.path if p not in (str(ROOT), str(ROOT / "lab")))]
os.environ.setdefault("PYTHONPATH", str(ROOT))  # workers are started with it

import streamlit as st

st.set_page_config(page_title="PyTorch Internals Lab", page_icon=str(ROOT / "components/icon.png"), layout="wide")
pages = {
    "": [
        st.Page(ROOT / "pages/home.py", title="Start", url_path="home", icon=":material/home:", default=True),
    ],
    "Autograd": [
        st.Page(
            ROOT / "pages/autograd_graph.py",
            title="Autograd graph",
            url_path="autograd_graph",
            icon=":material/account_tree:",
            help="Type PyTorch, see the graph that autograd recorded and the backward pass step by step.",
        ),
    ],
    "Training": [
        st.Page(
            ROOT / "pages/gradient_flow.py",
            title="Gradient flow",
            url_path="gradient_flow",
            icon=":material/stacked_line_chart:",
            help="Vanishing and exploding gradients over depth, the theory beside them, and what clipping does.",
        ),
    ],
    "Modules": [
        st.Page(
            ROOT / "pages/train_eval.py",
            title="Train and eval",
            url_path="train_eval",
            icon=":material/toggle_on:",
            help="Dropout and BatchNorm in both modes, eval() against no_grad, and a scan of your own model.",
        ),
    ],
    "Memory and speed": [
        st.Page(
            ROOT / "pages/memory_timeline.py",
            title="Memory timeline",
            url_path="memory_timeline",
            icon=":material/memory:",
            help="What is alive at every operation of a training step, mixed precision, checkpointing, and what will fit.",
        ),
        st.Page(
            ROOT / "pages/op_profile.py",
            title="Operator profile",
            url_path="op_profile",
            icon=":material/timer:",
            help="Where a training step spends its time: parts, operators, timeline, and what the device could do.",
        ),
    ],
}
st.navigation(pages).run()
