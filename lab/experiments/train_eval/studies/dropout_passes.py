"""Many passes of one dropout module over one input: what was dropped, and what mean and variance came out."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from lab.experiments.train_eval.studies.binomial import LEVEL, binomial_interval
from lab.experiments.train_eval.studies.dropout_forms import FORMS, Form, Law, law_of
from lab.records.modes_dropout import Convergence, DropoutReading, Grid, Moments

POINTS = 60
"""Numbers of passes at which the convergence is noted."""
GRID_ROWS, GRID_COLUMNS = 16, 32
Z = 3.2905
"""Standard deviations that hold ``LEVEL`` of a normal distribution."""


def read_dropout(
    module: str, p: float, x: torch.Tensor, passes: int, seed: int, same_mask: bool, tell: Callable[[float], None]
) -> DropoutReading:
    """Run ``passes`` passes in train mode and two in eval mode. ``same_mask``: set the generator back before each."""
    form, law = FORMS[module], law_of(module, p)
    layer = form.make(p).to(x.device)
    notes, first, second, sums = [], None, None, _Sums(x, form, law)
    stops = {round(passes ** (i / (POINTS - 1))) for i in range(POINTS)} if passes > 1 else {1}
    torch.manual_seed(seed)
    for done in range(1, passes + 1):
        if same_mask:
            torch.manual_seed(seed)
        y = layer(x)
        first, second = (y if done == 1 else first), (y if done == 2 else second)
        sums.add(y)
        if done in stops:
            notes.append(sums.note(1 if same_mask else done))
        if done % 32 == 0:
            tell(done / passes)
    assert first is not None
    if second is None:
        if same_mask:
            torch.manual_seed(seed)
        second = layer(x)
    layer.eval()
    evaluated = layer(x)
    return _reading(x, form, law, sums, first, second, evaluated, tuple(notes), same_mask)


def is_dropped(y: torch.Tensor, x: torch.Tensor, law: Law) -> torch.Tensor:
    """Which elements of ``y`` were dropped. An element that fits both laws (x equals d) counts as kept."""
    tolerance = 1e-5 * (1 + abs(law.b)) if law.d else 0.0  # a·d + b is rounded, a plain zero is not
    if law.p == 1:
        return y == 0
    return ((y - law.dropped).abs() <= tolerance) & ((y - law.kept(x)).abs() > tolerance)


class _Sums:
    """Running totals over passes, in float64."""

    def __init__(self, x: torch.Tensor, form: Form, law: Law) -> None:
        self.x, self.form, self.law = x, form, law
        self.passes = self.dropped = self.partly = 0
        self.total = self.squares = self.kept_error = 0.0
        self.units = x.numel() if form.unit == "element" else x.shape[0] * x.shape[1]
        gaps = (x.double() - law.d).reshape(self.units, -1).sum(1)  # each unit is kept or dropped as a whole
        self.mean_variance = law.a**2 * law.p * (1 - law.p) * (gaps.square().sum() / x.numel() ** 2).item()
        self.mean_predicted = law.mean(x)

    def add(self, y: torch.Tensor) -> None:
        dropped = is_dropped(y, self.x, self.law)
        whole, part = dropped.reshape(self.units, -1).all(1), dropped.reshape(self.units, -1).any(1)
        self.dropped += int(whole.sum())
        self.partly += int((part & ~whole).sum())
        errors = ((y - self.law.kept(self.x)).abs() * ~dropped).max() if self.law.p < 1 else y.new_zeros(())
        self.kept_error = max(self.kept_error, float(errors))
        self.passes += 1
        self.total += y.double().sum().item()
        self.squares += y.double().square().sum().item()

    def moments(self) -> Moments:
        count = self.passes * self.x.numel()
        mean = self.total / count
        return Moments(mean, max(self.squares / count - mean**2, 0.0))

    def note(self, independent: int) -> Convergence:
        now, spread = self.moments(), Z * math.sqrt(self.mean_variance / independent)
        low, high = binomial_interval(self.units * independent, self.law.p)
        return Convergence(
            self.passes,
            self.dropped / (self.units * self.passes),
            low,
            high,
            now.mean,
            self.mean_predicted - spread,
            self.mean_predicted + spread,
            now.variance,
        )


def _reading(
    x: torch.Tensor,
    form: Form,
    law: Law,
    sums: _Sums,
    first: torch.Tensor,
    second: torch.Tensor,
    evaluated: torch.Tensor,
    notes: tuple[Convergence, ...],
    same_mask: bool,
) -> DropoutReading:
    now, independent = sums.moments(), 1 if same_mask else sums.passes
    masks = [is_dropped(y, x, law) for y in (first, second)]
    eval_dropped = is_dropped(evaluated, x, law)
    values = [_rows(t, form) for t in (x, first, second, evaluated)]
    flags = [_rows(t, form) for t in (*masks, eval_dropped)]
    return DropoutReading(
        dropped_fraction=sums.dropped / (sums.units * sums.passes),
        expected_interval=binomial_interval(sums.units * independent, law.p),
        mean=now.mean,
        variance=now.variance,
        predicted=Moments(law.mean(x), law.variance(x)),
        level=LEVEL,
        unit=form.unit,
        units=sums.units,
        independent_passes=independent,
        kept_scale=law.a,
        kept_shift=law.b,
        kept_error=sums.kept_error,
        same_masks=bool((masks[0] == masks[1]).all()),
        partly_dropped=sums.partly,
        eval_dropped_fraction=eval_dropped.double().mean().item(),
        eval_gap=(evaluated - x).abs().max().item(),
        grid=Grid(*(_corner(t) for t in (*values, *flags)), rows_of=values[0].shape[0], columns_of=values[0].shape[1]),
        convergence=notes,
    )


def _rows(t: torch.Tensor, form: Form) -> torch.Tensor:
    """(N, C) as it is; (N, C, L) and (N, C, H, W) with the channels side by side, images below each other."""
    if form.dims == 4:
        return t.permute(0, 2, 1, 3).flatten(2).flatten(0, 1)  # (N·H, C·W)
    return t.flatten(1)


def _corner(t: torch.Tensor) -> tuple[tuple[Any, ...], ...]:
    return tuple(map(tuple, t[:GRID_ROWS, :GRID_COLUMNS].tolist()))
