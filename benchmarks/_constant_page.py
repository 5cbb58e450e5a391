"""A page that draws the picture of a constant result when Run is pressed: what the browser and Streamlit cost alone."""

import json
from pathlib import Path

import streamlit as st

from components.autograd_graph.graph_view import graph_view

given = json.loads((Path(st.query_params["file"])).read_text(encoding="utf-8"))
if st.button("Run", type="primary"):
    st.session_state["run"] = st.session_state.get("run", 0) + 1
if "run" in st.session_state:
    result = given["results"][st.session_state["run"] % len(given["results"])]
    graph_view(result, program=given["program"], key="constant")
