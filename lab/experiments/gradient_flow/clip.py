"""One clipping of all gradients, with the mistakes that can be planted in it, and what it did."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence

import torch
from torch import nn

from lab.experiments.gradient_flow.schema import NORM_TYPES, Params
from lab.instruments.gradients.clipping import compare, total_norm
from lab.records.gradients import Clipping, ClipStep

SCALE = 65536.0
"""First scale of a GradScaler."""


class Clipper:
    """Clips in place and keeps a record of every step. ``unscale`` is called after clipping where the trap asks for it."""

    def __init__(self, params: Params, parameters: Sequence[nn.Parameter]) -> None:
        self.params, self.parameters = params, list(parameters)
        self.limit = -params.clip_limit if params.trap == "negative" else params.clip_limit
        self.steps: list[ClipStep] = []
        self.total_norms: dict[str, float] = {}
        self.warning, self.error, self.skipped = "", "", 0

    def step(self, number: int, unscale: Callable[[], object] | None, scale: float) -> None:
        """Clip gradients that are ``scale`` times too large. Raises RuntimeError where ``error_if_nonfinite`` asks for it, after recording the step."""
        norm_type = NORM_TYPES[self.params.norm_type]
        if self.params.clip == "none":
            self._leave(number, norm_type, unscale)
            return
        before = [g.detach().clone() for g in self._gradients()]
        if unscale:
            before = [g / scale for g in before]
        self._total(before)
        returned, problem = self._clip(norm_type)
        if unscale:
            unscale()
        found = compare(before, self._gradients(), norm_type)
        clipped = found.changed_share > 0
        self.steps.append(
            ClipStep(number, found.norm_before, found.norm_after, returned, found.cosine, clipped, found.changed_share)
        )
        if problem:
            self.error = str(problem)
            raise problem

    def _leave(self, number: int, norm_type: float, unscale: Callable[[], object] | None) -> None:
        if unscale:
            unscale()
        self._total(self._gradients())
        norm = total_norm(self._gradients(), norm_type)
        self.steps.append(ClipStep(number, norm, norm, None, 1.0 if 0 < norm < math.inf else None, False, 0.0))

    def _total(self, gradients: list[torch.Tensor]) -> None:
        if not self.total_norms:
            self.total_norms = {name: total_norm(gradients, kind) for name, kind in NORM_TYPES.items()}

    def _gradients(self) -> list[torch.Tensor]:
        return [p.grad for p in self.parameters if p.grad is not None]

    def _clip(self, norm_type: float) -> tuple[float | None, RuntimeError | None]:
        """(what was returned, what was raised)."""
        targets = (p for p in self.parameters)
        if self.params.trap == "generator":
            sum(p.numel() for p in targets)  # the mistake: a generator can be read once
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                if self.params.clip == "norm":
                    norm = nn.utils.clip_grad_norm_(
                        targets, self.limit, norm_type, error_if_nonfinite=self.params.error_if_nonfinite
                    )
                    return float(norm), None
                if self.params.clip == "value":
                    nn.utils.clip_grad_value_(targets, self.limit)
                return None, None
            except RuntimeError as error:
                return None, error
            finally:
                self.warning = self.warning or next((str(w.message) for w in caught), "")

    def record(self, layer_norms: Sequence[float | None]) -> Clipping:
        """All steps. ``layer_norms``: of the weight gradients at the first step."""
        layers = {"sum of the layers' norms": sum(n for n in layer_norms if n is not None)}
        return Clipping(
            self.params.clip,
            self.limit if self.params.clip != "none" else None,
            self.params.norm_type,
            tuple(self.steps),
            sum(s.clipped for s in self.steps) / len(self.steps) if self.steps else None,
            self.total_norms | layers if self.total_norms else {},
            self.warning,
            self.error,
            self.skipped,
        )
