"""The colours of every figure: four palettes, never two in one figure, and the hues of the graph picture.

Safe for colour-blind readers: neighbours in stacking order stay at least 15 CIEDE2000 apart and differ in lightness, for
normal, deuteranope and protanope eyes (Machado, Oliveira, Fernandes 2009, severity 1.0); tests/components/kit/test_palette.py.
"""

from __future__ import annotations

from typing import Literal

Theme = Literal["light", "dark"]

MEMORY: dict[Theme, dict[str, str]] = {
    "light": {
        "parameters": "#0f766e",
        "buffers": "#5eead4",
        "optimizer state": "#6d28d9",
        "gradients": "#e879f9",
        "weight casts": "#a16207",
        "activations": "#fdba74",
        "recomputed": "#7c2d12",
        "inputs": "#60a5fa",
        "held": "#be123c",
        "temporaries": "#475569",
        "unseen": "#cbd5e1",
    },
    "dark": {
        "parameters": "#0d9488",
        "buffers": "#99f6e4",
        "optimizer state": "#7c3aed",
        "gradients": "#f0abfc",
        "weight casts": "#a16207",
        "activations": "#fdba74",
        "recomputed": "#7c2d12",
        "inputs": "#93c5fd",
        "held": "#fb7185",
        "temporaries": "#64748b",
        "unseen": "#cbd5e1",
    },
}
"""What fills memory, in stacking order from the bottom. ``unseen`` is the colour of the hatching."""

SIGN: dict[Theme, dict[str, str]] = {
    "light": {"negative": "#c2410c", "zero": "#f1f5f9", "positive": "#1d6fd8"},
    "dark": {"negative": "#fb923c", "zero": "#1f2937", "positive": "#93c5fd"},
}
"""Ends and middle of a diverging scale."""

HEALTH: dict[Theme, dict[str, str]] = {
    "light": {"vanishing": "#1d4ed8", "healthy": "#34d399", "exploding": "#b91c1c", "fault": "#ff8a8a"},
    "dark": {"vanishing": "#60a5fa", "healthy": "#a7f3d0", "exploding": "#ef4444", "fault": "#fca5a5"},
}
"""Gradients from too small to too large; ``fault`` is for NaN and infinity and always comes with an icon."""

MODES: dict[Theme, dict[str, str]] = {
    "light": {"train": "#e8590c", "eval": "#1e40af", "on": "#45b8a6", "off": "#e3e8ee"},
    "dark": {"train": "#ffa04d", "eval": "#3f6fe0", "on": "#8fe3d6", "off": "#39414a"},
}
"""What the batch decides against what is stored; lamps that are on and off."""

STEP: dict[Theme, dict[str, str]] = {
    "light": {
        "data loading": "#1d4ed8",
        "copy to device": "#7dd3fc",
        "forward": "#14b8a6",
        "backward": "#be185d",
        "optimizer": "#3b0764",
        "synchronisation": "#fdba74",
        "rest": "#64748b",
        "without the profiler": "#e2e8f0",
    },
    "dark": {
        "data loading": "#3b82f6",
        "copy to device": "#7dd3fc",
        "forward": "#14b8a6",
        "backward": "#be185d",
        "optimizer": "#5b21b6",
        "synchronisation": "#fdba74",
        "rest": "#64748b",
        "without the profiler": "#cbd5e1",
    },
}
"""Parts of a training step, in the order in which it runs them; ``without the profiler`` is a step that was not cut."""

GRAPH: dict[Theme, dict[str, str]] = {
    "light": {
        "ink": "#1d2327",
        "muted": "#505b68",
        "leaf-fill": "#dbeafe",
        "leaf-line": "#2563eb",
        "function-fill": "#f3f5f8",
        "function-line": "#8b97a7",
        "output-fill": "#dcfce7",
        "output-line": "#15803d",
        "custom-line": "#5b21b6",
        "checkpoint-line": "#713f12",
        "saved-fill": "#fed7aa",
        "saved-line": "#ea580c",
        "changed-fill": "#fee2e2",
        "changed-line": "#b91c1c",
        "gradient": "#a21caf",
        "fault": "#b91c1c",
        "edge": "#7a8798",
        "frame": "#e4e9ef",
    },
    "dark": {
        "ink": "#eef2f6",
        "muted": "#b3bdca",
        "leaf-fill": "#16305c",
        "leaf-line": "#60a5fa",
        "function-fill": "#262c36",
        "function-line": "#8290a3",
        "output-fill": "#12402a",
        "output-line": "#4ade80",
        "custom-line": "#d8b4fe",
        "checkpoint-line": "#e7c08a",
        "saved-fill": "#5b3310",
        "saved-line": "#fb923c",
        "changed-fill": "#611c1c",
        "changed-line": "#f87171",
        "gradient": "#f0abfc",
        "fault": "#fca5a5",
        "edge": "#8290a3",
        "frame": "#303844",
    },
}
"""The autograd picture, in the hues that torchviz made familiar: leaf blue, output green, saved tensors orange."""


def css_variables(theme: Theme) -> str:
    """The graph hues as declarations: ``--leaf-fill:#dbeafe;…``."""
    return "".join(f"--{name}:{colour};" for name, colour in GRAPH[theme].items())
