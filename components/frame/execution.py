"""The one executor of this server, and who is asking."""

from __future__ import annotations

import uuid

import streamlit as st

from lab.execution.executor import Executor


@st.cache_resource(show_spinner=False)
def executor() -> Executor:
    """Shared by every session. The first call begins to warm the workers and returns at once."""
    made = Executor()
    made.warm_up()
    return made


def visitor() -> str:
    """A random name for this session: the queue is fair between visitors."""
    return st.session_state.setdefault("visitor", uuid.uuid4().hex)
