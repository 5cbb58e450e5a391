"""Training steps under watch: the first in full, every step in short."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch

from lab.contract import Report
from lab.experiments.gradient_flow.clip import SCALE, Clipper
from lab.experiments.gradient_flow.layers import first_layer, summaries
from lab.experiments.gradient_flow.schema import Params
from lab.experiments.gradient_flow.subject import Subject
from lab.instruments.describing.modules import ModulePath
from lab.instruments.gradients.activation_watch import ActivationWatch
from lab.instruments.gradients.first_nonfinite import ForwardSearch, search_backward
from lab.instruments.gradients.layer_watch import COTANGENT, LOSS, LayerWatch, Watched
from lab.instruments.gradients.norms import dense, norm
from lab.instruments.gradients.over_time import over_time
from lab.instruments.modes.state import ModelState
from lab.program.own_model import OwnModelError
from lab.program.run import FILE
from lab.records.gradients import FirstNonfinite, Layer, OverTime, TrainingStep
from lab.workloads.optimizers import make_optimizer

PLANTED = {"inf": float("inf"), "nan": float("nan")}


@dataclass
class Stopwatch:
    """Shortest forward and backward of a step, with the instruments and without."""

    watched_s: float = float("inf")
    bare_s: float | None = None


class Training:
    """Runs the steps; what was recorded stays readable when one of them raises."""

    def __init__(self, subject: Subject, params: Params, report: Report) -> None:
        self.subject, self.params, self.report = subject, params, report
        parameters = [p for p in subject.model.parameters() if p.requires_grad]
        if not parameters:
            raise OwnModelError("No parameter of the model requires gradients. Leave at least one unfrozen.")
        self.optimizer = make_optimizer(params.optimizer, parameters, lr=params.lr)
        self.clipper = Clipper(params, parameters)
        self.watch = LayerWatch(subject.layers, file=FILE)
        self.over_time: tuple[OverTime, ...] = ()
        self.without: tuple[str, ...] = ()
        """Parameters that require gradients and have none after the first backward pass."""
        self.layers: list[Layer] = []
        self.steps: list[TrainingStep] = []
        self.losses: list[float] = []
        self.final_loss: float | None = None
        self.first_nonfinite: FirstNonfinite | None = None
        self.first_nonfinite_step: int | None = None
        self.clock = Stopwatch()
        self._order: list[Watched] = []
        self._scaler = torch.amp.GradScaler(params.device, init_scale=SCALE) if params.trap == "unscale" else None

    def run(self, until: float) -> None:
        """All steps, or as many as there is time for: ``until`` is on the clock of ``time.monotonic``."""
        with self.watch:
            for number in range(1, self.params.steps + 1):
                self.report((number - 1) / self.params.steps, f"step {number} of {self.params.steps}")
                self._step(number)
                if time.monotonic() > until:
                    break
        self._measure_bare()

    def _step(self, number: int) -> None:
        generator = _generator_state(self.params.device)
        self.optimizer.zero_grad()
        started = time.perf_counter()
        loss, seen = self._forward(first=number == 1)
        self.losses.append(float(loss.detach()))
        if number == 1:
            self._order = self.subject.ordered(self.watch)
            self._send_cotangent()
            if self.params.family == "own":
                self._look_over_time(generator)
        (self._scaler.scale(loss) if self._scaler else loss).backward()
        scale = self._scaler.get_scale() if self._scaler else 1.0
        short = summaries(self._order, number, self.losses[-1], scale)
        if number > 1:
            self.clock.watched_s = min(self.clock.watched_s, time.perf_counter() - started)
        else:
            named = self.subject.model.named_parameters()
            self.without = tuple(name for name, p in named if p.requires_grad and p.grad is None)
            self.layers = [first_layer(layer, seen, layer in self.subject.inner, scale) for layer in self._order]
        self.steps.append(short)
        if self.first_nonfinite is None and not _is_finite(short):
            self._locate(number, generator)
        if number == 1 and self.params.trap in (*PLANTED, "overflow"):
            self._plant()
        self._clip_and_update(number, short)

    def _forward(self, *, first: bool) -> tuple[torch.Tensor, dict[Any, Any]]:
        self.watch.begin(norm_only=not first)
        activity = ActivationWatch(self.watch.current)
        with activity if first else nullcontext():
            loss = self.subject.loss()
        self.watch.forward_done()
        if not loss.requires_grad:
            raise OwnModelError("The loss has no graph: it does not depend on a parameter that requires gradients.")
        return loss, activity.found

    def _send_cotangent(self) -> None:
        """A second backward pass through the same graph, from a random tensor at the last layer's output."""
        outputs = [layer.output for layer in self.subject.inner if layer.output is not None]
        if len(outputs) < 2:
            return
        self.watch.into = COTANGENT
        cotangent = torch.randn_like(outputs[-1])
        torch.autograd.grad(outputs[-1], outputs[0], cotangent, retain_graph=True)
        self.watch.into = LOSS

    def _look_over_time(self, generator: Sequence[torch.Tensor]) -> None:
        """A pass of its own with the random numbers of this step; the buffers and generators stay as they are."""
        if not any(isinstance(module, torch.nn.RNNBase) for module in self.subject.model.modules()):
            return
        now, state = _generator_state(self.params.device), ModelState(self.subject.model)
        _restore_generator(generator, self.params.device)
        try:
            self.over_time = over_time(self.subject.model, self.subject.loss)
        finally:
            with torch.no_grad():
                state.restore()
            _restore_generator(now, self.params.device)

    def _plant(self) -> None:
        """One bad value in the weight gradient of the middle layer."""
        layers = self.subject.inner or [layer for layer in self._order if layer.weights()[0].grad is not None]
        layer = layers[len(layers) // 2]
        parameter = (layer.stored or layer.weights)()[0]
        if parameter.grad is None:
            return
        large = torch.finfo(parameter.grad.dtype).max ** 0.5 * 10  # its square is beyond the dtype
        parameter.grad.view(-1)[0] = {**PLANTED, "overflow": large}[self.params.trap]
        if self.params.trap in PLANTED and self.first_nonfinite is None:
            name = "NaN" if self.params.trap == "nan" else "infinity"
            self.first_nonfinite = FirstNonfinite(layer.name, "planted gradient", "backward", name)
            self.first_nonfinite_step = 1

    def _clip_and_update(self, number: int, short: TrainingStep) -> None:
        before = [[w.detach().clone() for w in (layer.stored or layer.weights)()] for layer in self._order]
        scaler = self._scaler
        self.clipper.step(
            number, (lambda: scaler.unscale_(self.optimizer)) if scaler else None, scaler.get_scale() if scaler else 1.0
        )
        if number == 1:
            self.layers = [
                replace(row, clipped_grad_norm=_grad_norm(layer))
                for row, layer in zip(self.layers, self._order, strict=True)
            ]
        if scaler:
            scaler.step(self.optimizer)
            scale = scaler.get_scale()
            scaler.update()
            self.clipper.skipped += scaler.get_scale() < scale
        else:
            self.optimizer.step()
        ratios = tuple(_update_ratio(layer, old) for layer, old in zip(self._order, before, strict=True))
        self.steps[-1] = replace(short, update_ratio=ratios)
        if number == 1:
            self.layers = [replace(row, update_ratio=r) for row, r in zip(self.layers, ratios, strict=True)]
        bad = [
            layer for layer in self._order for w in (layer.stored or layer.weights)() if not bool(w.isfinite().all())
        ]
        if bad and self.first_nonfinite is None:
            operation = f"{type(self.optimizer).__name__} update"
            self.first_nonfinite = FirstNonfinite(bad[0].name, operation, "update", "infinity or NaN")
            self.first_nonfinite_step = number

    def _locate(self, number: int, generator: Sequence[torch.Tensor]) -> None:
        """Run the step again with every operation looked at; gradients stay as they were."""
        kept = [p.grad for p in self.subject.model.parameters()]
        _restore_generator(generator, self.params.device)
        self.watch.begin()
        with ModulePath() as path:
            search = ForwardSearch(lambda: self._layer_of(path), FILE)
            with search:
                loss = self.subject.loss()
        self.watch.forward_done()
        found = search.found or search_backward(loss, search.layers, search.lines)
        for parameter, gradient in zip(self.subject.model.parameters(), kept, strict=True):
            parameter.grad = gradient
        self.first_nonfinite = found or FirstNonfinite("", "loss", "forward", "NaN or infinity")
        self.first_nonfinite_step = number

    def _layer_of(self, path: ModulePath) -> str:
        """The layer that runs, or ran last inside the model; empty in the loss behind it."""
        layer = self.watch.current() if path.module() is not None or self.params.family != "own" else None
        return layer.name if layer else ""

    def _measure_bare(self) -> None:
        """One more forward and backward, not watched: the loss after the last update, and what watching costs."""
        self.optimizer.zero_grad()
        started = time.perf_counter()
        loss = self.subject.loss()
        self.final_loss = float(loss.detach())
        loss.backward()
        if self.params.device == "cuda":
            torch.cuda.synchronize()
        self.clock.bare_s = time.perf_counter() - started


def _grad_norm(layer: Watched) -> float | None:
    gradients = [w.grad for w in (layer.stored or layer.weights)() if w.grad is not None]
    return float(torch.stack([norm(dense(g)) for g in gradients]).norm()) if gradients else None


def _update_ratio(layer: Watched, old: list[torch.Tensor]) -> float | None:
    """‖ΔW‖ / ‖W‖ over the weights of a layer; None where they are all zero or got no gradient."""
    new = (layer.stored or layer.weights)()
    if not any(w.grad is not None for w in new):
        return None
    changed = torch.stack([norm(dense(w.detach() - o)) for w, o in zip(new, old, strict=True)]).norm()
    size = torch.stack([norm(dense(o)) for o in old]).norm()
    return float(changed / size) if size > 0 else None


def _is_finite(step: TrainingStep) -> bool:
    lists = (step.weight_grad_norm, step.activation_grad_norm, step.activation_rms)
    values = [step.loss, *(value for values in lists for value in values if value is not None)]
    return all(value - value == 0 for value in values)


def _generator_state(device: str) -> list[torch.Tensor]:
    return [torch.get_rng_state(), *([torch.cuda.get_rng_state()] if device == "cuda" else [])]


def _restore_generator(states: Sequence[torch.Tensor], device: str) -> None:
    torch.set_rng_state(states[0])
    if device == "cuda":
        torch.cuda.set_rng_state(states[1])
