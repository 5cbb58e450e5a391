"""The optimizers that a knob can name: one table for the steps that are measured and the scripts that repeat them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

OPTIMIZERS: dict[str, tuple[type[torch.optim.Optimizer], dict[str, float]]] = {
    "sgd": (torch.optim.SGD, {}),
    "momentum": (torch.optim.SGD, {"momentum": 0.9}),
    "adam": (torch.optim.Adam, {}),
    "adamw": (torch.optim.AdamW, {}),
}
"""Name of the knob -> class, and the settings that make it."""
LEARNING_RATES = {"sgd": 1e-3, "momentum": 1e-3, "adam": 1e-4, "adamw": 1e-4}
"""For pages without a knob for it: small enough that a few steps of any model stay finite."""


def make_optimizer(name: str, parameters: Iterable[torch.Tensor], **settings: Any) -> torch.optim.Optimizer:
    """``settings`` are keywords of the class; without ``lr`` that of LEARNING_RATES."""
    kind, own = OPTIMIZERS[name]
    return kind(parameters, **_settings(name, own, settings))  # pyright: ignore[reportCallIssue] - of each subclass


def optimizer_source(name: str, parameters: str, **settings: Any) -> str:
    """The same call as text: ``torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)``."""
    kind, own = OPTIMIZERS[name]
    given = ", ".join(f"{key}={value!r}" for key, value in _settings(name, own, settings).items())
    return f"torch.optim.{kind.__name__}({parameters}, {given})"


def implementation(name: str) -> dict[str, bool]:
    """The settings of ``forloop``, ``foreach`` or ``fused``: chosen, not left to the device."""
    return {"foreach": name == "foreach", "fused": name == "fused"}


def _settings(name: str, own: dict[str, float], given: dict[str, Any]) -> dict[str, Any]:
    return {"lr": LEARNING_RATES[name], **own, **given}
