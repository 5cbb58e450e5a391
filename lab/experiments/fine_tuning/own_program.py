"""A visitor's fine-tuning: ``make_model()`` and ``fine_tune(model)``, or any program that trains with an optimizer."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from lab.contract import Report
from lab.experiments.fine_tuning.schema import Params, Result
from lab.experiments.fine_tuning.surprises import surprises_of
from lab.experiments.fine_tuning.tensors import Gradient, moved_rows, state_bytes
from lab.experiments.fine_tuning.training_watch import TrainingWatch
from lab.program import run as program
from lab.program.explain import explain_fault

_SHARE = 0.6
_ROWS = 400


class FineTuneError(ValueError):
    """What is missing or wrong, in one sentence, with what to write."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


def run_own(params: Params, report: Report) -> Result:
    """Faults of the program do not raise: they are in ``fault``."""
    report(0.0, "running the program")
    with program.torch_defaults(params.seed, params.device):
        watch, error = TrainingWatch(), None
        with watch:
            ran = program.run_typed(params, share=_SHARE, names=program.namespace())
            names = ran.namespace
            if ran.ended is None:
                try:
                    names = {**names, **_driven(names, watch)}
                except Exception as raised:  # noqa: BLE001 - whatever the visitor's functions raise is what is shown
                    error = raised
        cause = ran.ended or error
        fault = explain_fault(cause) if cause else None
        return replace(
            _read(watch, names), values=_numbers(ran.namespace), code=params.code, fault=fault, **ran.said.fields()
        )


def _driven(names: dict[str, Any], watch: TrainingWatch) -> dict[str, Any]:
    """Call the visitor's two functions, where there are two; the model under its name."""
    make, tune = names.get("make_model"), names.get("fine_tune")
    if not inspect.isfunction(tune):
        return {}
    if not inspect.isfunction(make):
        model = next((names[n] for n in ("model", "net", "network") if isinstance(names.get(n), nn.Module)), None)
        if model is None:
            raise FineTuneError(
                "The program defines fine_tune(model) and no model. Write make_model(), which returns one.", _line(tune)
            )
    else:
        model = make()
    if not isinstance(model, nn.Module):
        raise FineTuneError(f"make_model() returned {type(model).__name__}, not an nn.Module.", _line(make))
    watch.note([{"model": model}])
    answer = tune(model)
    optimizers = [
        a for a in (answer if isinstance(answer, (tuple, list)) else [answer]) if isinstance(a, torch.optim.Optimizer)
    ]
    if not watch.optimizers:
        raise FineTuneError("fine_tune(model) made no optimizer. Build one in it and return it.", _line(tune))
    if not watch.steps and optimizers:
        _perturb(model, optimizers)
    return {"model": model}


def _perturb(model: nn.Module, optimizers: list[torch.optim.Optimizer]) -> None:
    """One step with gradients of ones where autograd would fill them: moves exactly what is trainable and held."""
    for p in model.parameters():
        p.grad = torch.ones_like(p) if p.requires_grad else None
    for optimizer in optimizers:
        optimizer.step()


def _read(watch: TrainingWatch, names: dict[str, Any]) -> Result:
    watch.note([names])
    after = {
        known.name or f"{list(known.tensor.shape)}": known.tensor
        for known in watch.known.values()
        if _counts(known.tensor, watch)
    }
    before = {known.name or f"{list(known.tensor.shape)}": known.before for known in watch.known.values()}
    gradients: dict[str, Gradient] = {known.name: known.gradient for known in watch.known.values()}
    held = {id(p) for made in watch.optimizers.values() for g in made.optimizer.param_groups for p in g["params"]}
    rows = moved_rows(before, after, held, gradients)
    surprises, foreign, missing = surprises_of(watch, names)
    return Result(
        view="own",
        moved=rows[:_ROWS],
        foreign=tuple(f"{name} {list(t.shape)}".strip() for name, t in foreign),
        foreign_count=sum(t.numel() for _, t in foreign),
        missing=missing,
        trainable_count=sum(t.numel() for t in after.values() if t.requires_grad),
        held_count=sum(t.numel() for made in watch.optimizers.values() for g in made.optimizer.param_groups for t in g["params"]),
        state_bytes=sum(state_bytes(made.optimizer) for made in watch.optimizers.values()),
        surprises=surprises,
        steps=watch.steps,
    )  # fmt: skip


def _counts(tensor: torch.Tensor, watch: TrainingWatch) -> bool:
    """Parameters, tensors that an optimizer holds, and buffers of modules: no inputs and no results."""
    held = any(tensor is p for made in watch.optimizers.values() for p in made.tensors)
    return (
        isinstance(tensor, nn.Parameter)
        or held
        or (not tensor.requires_grad and "running_" in watch.known[id(tensor)].name)
    )


def _line(function: Any) -> int | None:
    code = getattr(function, "__code__", None)
    return code.co_firstlineno if code is not None else None


def _numbers(names: dict[str, Any]) -> dict[str, float]:
    """Plain numbers and truth values that the program left, also those in a dict called result."""
    found = {k: v for k, v in names.items() if not k.startswith("_")}
    inner = names.get("result")
    if isinstance(inner, dict):
        found |= {k: v for k, v in inner.items() if isinstance(k, str)}
    return {k: float(v) for k, v in found.items() if type(v) in (bool, int, float)}
