"""The visitor's two paths, or two versions of a model, over the same rows."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from lab.contract import Report
from lab.experiments.serving_skew import comparing
from lab.experiments.serving_skew.pairs import pairs_of
from lab.experiments.serving_skew.schema import Params, Result
from lab.program import run as program
from lab.program.explain import explain_fault
from lab.workloads.serving_paths import rows as made_rows
from lab.workloads.serving_paths import run_modules

_SHARE = 0.6
_FUNCTIONS = (
    ("train_path", "serve_path"),
    ("train", "serve"),
    ("training_path", "serving_path"),
    ("offline", "online"),
)
_MODELS = (
    ("train_model", "serve_model"), ("trained", "served"), ("model", "served_model"), ("model", "serving_model"),
    ("old", "new"), ("before", "after"), ("model_a", "model_b"), ("reference", "candidate"),
)  # fmt: skip
_ROWS = ("golden", "golden_rows", "rows", "batch", "x", "inputs", "X")
Path = Callable[[Any], Mapping[str, Any]]


class PathError(ValueError):
    """What is missing or wrong in the two paths, in one sentence, with what to write."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


def run_own(params: Params, report: Report) -> Result:
    """Faults of the program do not raise: they are in ``fault``."""
    report(0.0, "running the program")
    with program.torch_defaults(params.seed, params.device):
        ran = program.run_typed(params, share=_SHARE, names=program.namespace())
        result = Result(view="own", code=params.code, values=_numbers(ran.namespace))
        if ran.ended:
            return replace(result, fault=explain_fault(ran.ended), **ran.said.fields())
        try:
            result = _compared(ran.namespace, params, result)
        except Exception as error:  # noqa: BLE001 - whatever the visitor's paths raise is what is shown
            result = replace(result, fault=explain_fault(error))
        return replace(result, **ran.said.fields())


def _compared(names: dict[str, Any], params: Params, result: Result) -> Result:
    models = _models(names)
    given = next((names[name] for name in _ROWS if names.get(name) is not None and not callable(names[name])), None)
    functions = _functions(names)
    if functions is None and models is None:
        return replace(result, pairs=pairs_of(names))
    used = _used_models(functions, names) if functions else models
    weights = comparing.weights_that_differ(*used) if used else ()
    modes = comparing.modes_that_differ(*used) if used else ()
    if functions is None:
        assert models is not None
        if given is None:
            raise PathError("The program has two models and no rows. Write rows = torch.randn(64, 4), what both get.")
        functions = (_of_model(models[0]), _of_model(models[1]))
    golden = given if given is not None else made_rows(params.golden_rows, params.seed + 1)
    first, second, third = (
        _stages(path, golden, params.seed + at) for at, path in enumerate((*functions, functions[1]))
    )
    lacking = [name for name in first if name not in second]
    if not first or len(lacking) == len(first):
        raise PathError(
            f"The two paths have no stage in common: {', '.join(map(repr, first)) or 'none'} and {', '.join(map(repr, second)) or 'none'}. "
            "Give the same stages the same names.",
            _line(functions[1]),
        )
    return _told(
        first, second, third, params, replace(result, weights_differ=weights, modes_differ=modes, rows=_count(golden))
    )


def _told(first: Any, second: Any, third: Any, params: Params, result: Result) -> Result:
    stages = comparing.compare(first, second, third, params.tolerance)
    parted = comparing.first_of(stages)
    columns = comparing.columns_of(first, second, [f"column {at}" for at in range(_width(first.get("features")))])
    random = comparing.random_from(stages)
    dtypes = sorted({str(v.dtype).removeprefix("torch.") for v in second.values() if isinstance(v, torch.Tensor)})
    cause = comparing.cause_of(
        parted, weights=result.weights_differ, modes=result.modes_differ, columns=columns, random=random, dtypes=dtypes,
        tolerance=params.tolerance,
    )  # fmt: skip
    by = {stage.name: stage for stage in stages}
    label = next((by[name].gap for name in ("label", "labels", "names") if name in by), None)
    return replace(
        result,
        stages=stages,
        first=parted,
        cause=cause,
        columns=columns,
        random_from=random,
        dtypes=tuple(dtypes),
        labels_changed=label if label is not None else _flips(first, second),
        probability_gap=_probabilities(first, second),
    )


def _flips(first: Mapping[str, Any], second: Mapping[str, Any]) -> float:
    """Share of rows whose largest probability or logit is another one."""
    for name in ("probabilities", "probs", "logits", "output"):
        a, b = first.get(name), second.get(name)
        if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and a.shape == b.shape and a.dim() == 2:
            return float((a.argmax(1) != b.argmax(1)).double().mean())
    return 0.0


def _probabilities(first: Mapping[str, Any], second: Mapping[str, Any]) -> float:
    a, b = (side.get("probabilities", side.get("probs")) for side in (first, second))
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and a.shape == b.shape and a.numel():
        return float((a.detach().double() - b.detach().double()).abs().max())
    return 0.0


def _width(value: Any) -> int:
    return value.shape[1] if isinstance(value, torch.Tensor) and value.dim() == 2 else 0


def _count(golden: Any) -> int:
    try:
        return len(golden)
    except TypeError:
        return 1


def _functions(names: dict[str, Any]) -> tuple[Path, Path] | None:
    for first, second in _FUNCTIONS:
        if inspect.isfunction(names.get(first)) and inspect.isfunction(names.get(second)):
            return names[first], names[second]
    lone = next((n for pair in _FUNCTIONS[:1] for n in pair if inspect.isfunction(names.get(n))), None)
    if lone:
        other = "serve_path" if lone == "train_path" else "train_path"
        raise PathError(
            f"The program defines {lone} and no {other}. Write both: each takes the rows and returns a dict of stages."
        )
    return None


def _models(names: dict[str, Any]) -> tuple[nn.Module, nn.Module] | None:
    return next(
        ((names[a], names[b]) for a, b in _MODELS if isinstance(names.get(a), nn.Module) and isinstance(names.get(b), nn.Module)),
        None,
    )  # fmt: skip


def _used_models(functions: tuple[Path, Path], names: dict[str, Any]) -> tuple[nn.Module, nn.Module] | None:
    """The only module that each of the two functions names."""
    found = []
    for function in functions:
        code = getattr(function, "__code__", None)
        used = [names[n] for n in getattr(code, "co_names", ()) if isinstance(names.get(n), nn.Module)]
        found.append(used[0] if len(used) == 1 else None)
    return (found[0], found[1]) if found[0] is not None and found[1] is not None else None


def _of_model(model: nn.Module) -> Path:
    def path(golden: Any) -> dict[str, Any]:
        modules, output = run_modules(model, (golden,))
        return {**{f"module {name}": value for name, value in modules.items()}, "output": output}

    return path


def _stages(path: Path, golden: Any, seed: int) -> dict[str, Any]:
    torch.manual_seed(seed)
    with torch.no_grad():
        found = path(copy.deepcopy(golden))
    if not isinstance(found, Mapping):
        name = getattr(path, "__name__", "the path")
        raise PathError(
            f"{name}(rows) returned {type(found).__name__}: return a dict of stages, such as {{'features': x, 'logits': y}}.",
            _line(path),
        )
    return {
        str(name): value.detach().clone() if isinstance(value, torch.Tensor) else value for name, value in found.items()
    }


def _line(path: Any) -> int | None:
    code = getattr(path, "__code__", None)
    return code.co_firstlineno if code is not None and code.co_filename == program.FILE else None


def _numbers(names: dict[str, Any]) -> dict[str, float]:
    """Plain numbers and truth values that the program left, also those in a dict called result."""
    found = {k: v for k, v in names.items() if not k.startswith("_")}
    inner = names.get("result")
    if isinstance(inner, dict):
        found |= {k: v for k, v in inner.items() if isinstance(k, str)}
    return {k: float(v) for k, v in found.items() if type(v) in (bool, int, float)}
