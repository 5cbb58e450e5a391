"""Which machine measures here."""

from __future__ import annotations

import streamlit as st

from components.frame.execution import executor
from lab.quantities import short_bytes_text


def device_badge() -> None:
    """The devices of this host, and why there is no GPU when there is none."""
    with st.spinner("Looking at this machine"):
        host = executor().host()
    st.markdown(f":material/memory: **{host.cpu}**")
    memory = short_bytes_text(host.memory_bytes)
    st.caption(f"{host.cores} cores · {memory} memory · torch {host.torch} · Python {host.python} · {host.platform}")
    if host.cuda:
        st.markdown(f":material/developer_board: **{host.cuda}**")
    else:
        st.caption(f"CUDA: {host.cuda_reason}")


def typed_code_badge() -> None:
    """Whether programs that visitors type run here, and why not."""
    with st.spinner("Checking how programs can be contained"):
        typed = executor().typed_code()
    if not typed.available:
        st.warning(typed.reason, icon=":material/block:")
        return
    words = {
        "sealed": "Programs that you type run on the CPU, each in a sealed process of its own.",
        "gpu": "Programs that you type run in a confined process of their own, GPU included.",
        "trusted": "Programs that you type run without walls: this server trusts its visitors.",
    }
    st.markdown(f":material/terminal: {words[typed.mode]}")
