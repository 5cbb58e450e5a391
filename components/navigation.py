"""The one list of pages: the navigation, the start page and the tests read it.

One more page is an experiment, a script in ``pages/`` of the same stem, and one line here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import streamlit as st

LAB = "PyTorch Internals Lab"
START = "Start"
SCRIPTS = Path(__file__).resolve().parent.parent / "pages"


@dataclass(frozen=True)
class Page:
    """One page of the lab."""

    stem: str
    """Name of the experiment, its figures, its tests, its script, and the page's address."""
    prefix: str
    """Of its keys in the query string."""
    section: str
    """Heading in the sidebar."""
    title: str
    icon: str
    """Name of a Material symbol."""
    sentence: str
    """What it shows, in one sentence."""

    @property
    def script(self) -> Path:
        return SCRIPTS / f"{self.stem}.py"


PAGES = (
    Page(
        "tensor_anatomy", "ta", "Tensors", "Tensor anatomy", "grid_on",
        "What each line of a program did: view or copy, whose memory, which dtype, which device, and where shapes fit by accident.",
    ),
    Page(
        "autograd_graph", "ag", "Autograd", "Autograd graph", "account_tree",
        "Type PyTorch, see the graph that autograd recorded, what it keeps in memory, and the backward pass step by step.",
    ),
    Page(
        "gradient_modes", "gm", "Autograd", "Gradient modes", "layers",
        "Every line in its mode: grad, no_grad or inference; where a tensor was born, and which later use fails.",
    ),
    Page(
        "gradient_flow", "gf", "Training", "Gradient flow", "stacked_line_chart",
        "Vanishing and exploding gradients over depth, the theory beside them, and what clipping does.",
    ),
    Page(
        "fine_tuning", "ft", "Training", "Fine-tuning", "tune",
        "What moved and what did not, tensor by tensor: frozen parts, stale optimizers, low rank, forgetting.",
    ),
    Page(
        "reproducibility", "rp", "Training", "Reproducibility", "compare_arrows",
        "Two runs side by side: the first operation that differs, how the gap grows, which lines draw, and what is pinned.",
    ),
    Page(
        "checkpoint_resume", "cr", "Shipping", "Stop and resume", "save",
        "A training stopped, saved and loaded: where each lost part of its state first shows, and what a file holds.",
    ),
    Page(
        "serving_skew", "sk", "Shipping", "Serving skew", "call_split",
        "A golden set through the training path and the serving path: the first stage where they part, and why.",
    ),
    Page(
        "train_eval", "te", "Modules", "Train and eval", "toggle_on",
        "Dropout and BatchNorm in both modes, eval() against no_grad, and a scan of your own model.",
    ),
    Page(
        "module_anatomy", "ma", "Modules", "Module anatomy", "schema",
        "What a module registers and what it does not, hooks in their order, and what loading a state dict does.",
    ),
    Page(
        "mixed_precision", "mp", "Memory and speed", "Mixed precision", "compress",
        "Gradients against the window of fp16, bf16 and fp8, a scaler at work, dtypes by line, and updates that are lost.",
    ),
    Page(
        "memory_timeline", "mt", "Memory and speed", "Memory timeline", "memory",
        "What is alive at every operation of a training step, mixed precision, checkpointing, and what will fit.",
    ),
    Page(
        "transfers", "tr", "Memory and speed", "Transfers", "sync_alt",
        "The lines of a program where the host waits for the device, the rewrite of each, and what copies cost.",
    ),
    Page(
        "op_profile", "op", "Memory and speed", "Operator profile", "timer",
        "Where a training step spends its time: parts, operators, timeline, and what the device could do.",
    ),
)  # fmt: skip


def prefix_of(stem: str) -> str:
    """Of the page's keys in the query string."""
    found = [page.prefix for page in PAGES if page.stem == stem]
    if not found:
        raise LookupError(f"{stem} has no line in the PAGES of components/navigation.py")
    return found[0]


def tab_title(title: str) -> str:
    """What the browser's tab says: the page first, for tabs are narrow."""
    return LAB if title == START else f"{title} · {LAB}"


def navigation() -> dict[str, list[st.Page]]:
    """What ``st.navigation`` takes: the start page, then every page under its section."""
    start = st.Page(SCRIPTS / "home.py", title=START, url_path="home", icon=":material/home:", default=True)
    sections: dict[str, list[st.Page]] = {"": [start]}
    for page in PAGES:
        sections.setdefault(page.section, []).append(
            st.Page(
                page.script,
                title=page.title,
                url_path=page.stem,
                icon=f":material/{page.icon}:",
                help=page.sentence,
            )
        )
    return sections
