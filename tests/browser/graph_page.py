"""A page with nothing but one figure, for the browser tests: ``?case=NAME&height=640&present=1``."""

from dataclasses import replace

import streamlit as st

from components.autograd_graph.graph_view import graph_view
from tests.components.autograd_graph.graph_results import CHAIN_PROGRAM, PROGRAMS, chain, measured

st.set_page_config(layout="wide")
case = st.query_params.get("case", "used twice")
seed = st.button("Run again")
result, program = (chain(20_000), CHAIN_PROGRAM) if case == "chain" else (measured(case), PROGRAMS[case])
if seed:
    result = replace(result, nodes=tuple(replace(n, value=7.0) for n in result.nodes))
graph_view(
    result,
    program=program,
    key="figure",
    height=int(st.query_params.get("height", 640)),
    presenter=st.query_params.get("present") == "1",
)
