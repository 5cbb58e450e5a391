"""In one screen: what this is, on which device it runs, where to begin."""

from pathlib import Path

import streamlit as st

from components.device_badge import device_badge, typed_code_badge
from components.share_link import slug
from components.style import page_style
from lab.experiments import autograd_graph, gradient_flow, memory_timeline, op_profile, train_eval

HERE = Path(__file__).parent
OTHERS = (  # page, prefix of its address, lessons, icon, name, what it shows
    ("gradient_flow", "gf", gradient_flow.lessons, "stacked_line_chart", "Gradient flow", "Norms over depth, with the theory beside them; what clipping does."),
    ("train_eval", "te", train_eval.lessons, "toggle_on", "Train and eval", "Dropout and BatchNorm in both modes, as numbers; a scan of your model."),
    ("memory_timeline", "mt", memory_timeline.lessons, "memory", "Memory timeline", "What is alive at every operation, whose it is, and what will fit."),
    ("op_profile", "op", op_profile.lessons, "timer", "Operator profile", "Where a training step spends its time, and what would make it faster."),
)  # fmt: skip

page_style()
st.title("PyTorch Internals Lab", anchor=False)
st.markdown(
    "What does PyTorch really do? Say what you expect, measure it, and take the code with you.  \n"
    "Every number is measured on this machine at the moment that you ask."
)
left, right = st.columns([5, 2], gap="large")
with left:
    with st.container(border=True, gap="xxsmall"):
        st.page_link(
            HERE / "autograd_graph.py",
            label="**Type PyTorch, see what autograd recorded**",
            icon=":material/account_tree:",
        )
        st.caption("The graph of your own program, what it keeps in memory, and the backward pass step by step.")
        with st.container(horizontal=True, gap="small"):
            for lesson in autograd_graph.lessons[:6]:
                st.page_link(
                    HERE / "autograd_graph.py", label=lesson.title, query_params={"ag-preset": slug(lesson.title)}
                )
    for pair in (OTHERS[:2], OTHERS[2:]):
        for (page, prefix, lessons, icon, name, about), column in zip(pair, st.columns(2), strict=True):
            with column.container(border=True, gap="xxsmall", height="stretch"):
                st.page_link(HERE / f"{page}.py", label=f"**{name}**", icon=f":material/{icon}:")
                st.caption(about)
                for lesson in lessons[:3]:
                    st.page_link(
                        HERE / f"{page}.py", label=lesson.title, query_params={f"{prefix}-preset": slug(lesson.title)}
                    )
with right:
    st.subheader("This machine", anchor=False)
    device_badge()
    st.subheader("Your own programs", anchor=False)
    typed_code_badge()
