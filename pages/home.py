"""In one screen: what this is, on which device it runs, where to begin."""

from pathlib import Path

import streamlit as st

from components.device_badge import device_badge, typed_code_badge
from components.share_link import slug
from components.style import page_style
from lab.experiments import autograd_graph

GRAPH = Path(__file__).parent / "autograd_graph.py"

page_style()
st.title("PyTorch Internals Lab", anchor=False)
st.markdown(
    "What does PyTorch really do? Say what you expect, measure it, and take the code with you.  \n"
    "Every number is measured on this machine at the moment that you ask."
)
left, right = st.columns([5, 2], gap="large")
with left:
    with st.container(border=True, gap="xxsmall"):
        st.page_link(GRAPH, label="**Type PyTorch, see what autograd recorded**", icon=":material/account_tree:")
        st.caption("The graph of your own program, what it keeps in memory, and the backward pass step by step.")
    st.subheader("Or begin with a question", anchor=False)
    for pair in zip(autograd_graph.lessons[0:8:2], autograd_graph.lessons[1:8:2], strict=True):
        for lesson, column in zip(pair, st.columns(2), strict=True):
            with column.container(border=True, gap="xxsmall", height="stretch"):
                st.page_link(GRAPH, label=f"**{lesson.title}**", query_params={"ag-preset": slug(lesson.title)})
                st.caption(lesson.question)
with right:
    st.subheader("This machine", anchor=False)
    device_badge()
    st.subheader("Your own programs", anchor=False)
    typed_code_badge()
