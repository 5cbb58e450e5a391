"""A page that draws the picture of a constant result when Run is pressed: what the browser and Streamlit cost alone."""

import json
from pathlib import Path

import streamlit as st

from components.autograd_graph.graph_view import graph_view
from lab.records.graph import GraphResult
from lab.wire import decode


@st.cache_resource
def read(file: str) -> tuple[str, list[GraphResult]]:
    """The program and its results, as they lie in memory behind a page."""
    given = json.loads(Path(file).read_text(encoding="utf-8"))
    return given["program"], [decode(GraphResult, data) for data in given["results"]]


program, results = read(st.query_params["file"])
if st.button("Run", type="primary"):
    st.session_state["run"] = st.session_state.get("run", 0) + 1
if "run" in st.session_state:
    graph_view(results[st.session_state["run"] % len(results)], program=program, key="constant")
