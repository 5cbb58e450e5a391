"""What may be run here, and what is predicted instead."""

from __future__ import annotations

import torch

from lab.experiments.memory_timeline.schema import Params
from lab.experiments.memory_timeline.tracking import Tracked
from lab.workloads import known_models, models

REAL_BYTES = {"cpu": 2 << 30}
"""A real run may have this peak; the rest is predicted. On a GPU what is free on it."""
REAL_FLOPS = 4e11
"""And about this much work a step: some ten seconds on one core."""


def too_large(params: Params, prediction: Tracked) -> str:
    """Why the run is predicted and not done here, or empty."""
    limit = REAL_BYTES["cpu"] if params.device == "cpu" else torch.cuda.mem_get_info()[0]
    if prediction.peak_bytes > limit:
        return f"The run would need {prediction.peak_bytes:,} B; runs up to {limit:,} B are done here, larger ones are predicted."
    flops = 6 * prediction.parameters * params.batch * uses_of_a_weight(params)
    if params.model != "own" and params.device == "cpu" and flops > REAL_FLOPS:
        return (
            f"A step would take about {flops:.0e} operations; up to {REAL_FLOPS:.0e} are done here, more is predicted."
        )
    return ""


def uses_of_a_weight(params: Params) -> int:
    """How often one sample uses a weight, about: its tokens, patches or pixels."""
    whole = {"cnn": models.IMAGE**2, "vit": (known_models.PICTURE // known_models.PATCH) ** 2, "resnet50": 160}
    return params.seq if params.model in ("gpt", "lstm", "llama") else whole.get(params.model, 1)


def surely_small(params: Params) -> bool:
    """A training of the lab's own that may be run without asking a prediction: its weights and activations are few."""
    if params.predict or params.model not in ("mlp", "cnn", "gpt", "lstm") or params.device != "cpu":
        return False
    vocabulary = 2 * params.vocabulary * params.width if params.model == "gpt" else 0
    weights = 12 * params.layers * params.width**2 + vocabulary
    numbers = 40 * params.width * params.layers * params.batch * uses_of_a_weight(params)
    return 16 * weights + 4 * numbers < REAL_BYTES["cpu"] / 8 and 6 * weights * numbers / params.width < REAL_FLOPS
