"""In one screen: what this is, on which device it runs, where to begin."""

from pathlib import Path

import streamlit as st

from components.device_badge import device_badge, typed_code_badge
from components.share_link import slug
from lab.experiments import autograd_graph

GRAPH = Path(__file__).parent / "autograd_graph.py"

st.title("PyTorch Internals Lab", anchor=False)
st.markdown(
    "What does PyTorch really do? Predict it, measure it here, and take the code with you. "
    "Every number on these pages is measured on this machine when you ask."
)
left, right = st.columns([3, 2], gap="large")
with left:
    st.subheader("Type PyTorch, see what autograd recorded", anchor=False)
    st.page_link(GRAPH, label="Open the autograd graph", icon=":material/account_tree:")
    st.subheader("Begin with a question", anchor=False)
    for lesson in autograd_graph.lessons[:6]:
        with st.container(border=True):
            st.page_link(GRAPH, label=f"**{lesson.title}**", query_params={"ag-preset": slug(lesson.title)})
            st.caption(lesson.question)
with right:
    st.subheader("This machine", anchor=False)
    device_badge()
    st.subheader("Your own programs", anchor=False)
    typed_code_badge()
