"""In one screen: what this is, on which device it runs, where to begin."""

from importlib import import_module

import streamlit as st

from components.frame.device_badge import device_badge, typed_code_badge
from components.frame.share_link import slug
from components.frame.style import page_style
from components.navigation import PAGES

LESSONS = {page.stem: import_module(f"lab.experiments.{page.stem}").lessons for page in PAGES}
FIRST, *OTHERS = PAGES

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
            FIRST.script, label="**Type PyTorch, see what autograd recorded**", icon=f":material/{FIRST.icon}:"
        )
        st.caption(FIRST.sentence)
        with st.container(horizontal=True, gap="small"):
            for lesson in LESSONS[FIRST.stem][:6]:
                st.page_link(
                    FIRST.script, label=lesson.title, query_params={f"{FIRST.prefix}-preset": slug(lesson.title)}
                )
    for number in range(0, len(OTHERS), 2):
        for page, column in zip(OTHERS[number : number + 2], st.columns(2), strict=False):
            with column.container(border=True, gap="xxsmall", height="stretch"):
                st.page_link(page.script, label=f"**{page.title}**", icon=f":material/{page.icon}:")
                st.caption(page.sentence)
                for lesson in LESSONS[page.stem][:3]:
                    st.page_link(
                        page.script, label=lesson.title, query_params={f"{page.prefix}-preset": slug(lesson.title)}
                    )
with right:
    st.subheader("This machine", anchor=False)
    device_badge()
    st.subheader("Your own programs", anchor=False)
    typed_code_badge()
