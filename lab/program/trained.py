"""The visitor's own model where a program does not name it: the step that it trained, or the module that it called.

NOTE What is found, in this order.
1. ``model`` and ``batch`` at the top level are the program's word and count.
2. Else the last step that was trained: the statements before its backward make the loss (see ``loss_lines``).
3. Else what the names of the program say (see ``own_model``).
4. Else the last call of the only module with parameters that was called, or the first batch of a DataLoader.
Where several modules are trained, one that is called model, net or network counts; otherwise the visitor is asked.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch

from lab.program.lines import FILE
from lab.program.loss_lines import RESULT
from lab.program.own_model import (
    MODELS,
    TARGETS,
    OwnModel,
    OwnModelError,
    first_tensor,
    own_model,
    returned_loss,
    scalar,
)
from lab.program.run import Ran
from lab.program.watch import Backward, Call


def model_of(ran: Ran) -> OwnModel:
    """What the program leaves to be measured. Raises OwnModelError."""
    names = ran.namespace
    if names.get("batch") is not None and any(isinstance(names.get(n), torch.nn.Module) for n in MODELS):
        return own_model(names)
    found = _trained_step(ran) if ran.seen.backwards else None
    if found:
        return found
    try:
        return own_model(names)
    except OwnModelError as error:
        call = _called(ran)
        if call:
            return _from_call(call)
        loader = _loader(names)
        if loader is None or not any(isinstance(v, torch.nn.Module) for v in names.values()):
            raise _with_classes(error, names) from None
        return own_model({**names, "batch": next(iter(loader))})


def _trained_step(ran: Ran) -> OwnModel | None:
    """From the last backward of the module that the program trains."""
    steps = list(ran.seen.backwards.values())
    wanted = next((ran.namespace[n] for n in MODELS if isinstance(ran.namespace.get(n), torch.nn.Module)), None)
    calls = {id(call.module): call for step in steps for call in step.trained()}
    if wanted is None and len(calls) > 1:
        named = [call for call in calls.values() if call.name.split(".")[-1] in MODELS]
        if len(named) != 1:
            raise _ask([call.name for call in calls.values()])
        wanted = named[0].module
    for step in reversed(steps):
        for call in step.trained():
            if wanted is None or call.module is wanted:
                return _from_step(step, call)
    return None


def _ask(names: list[str]) -> OwnModelError:
    return OwnModelError(
        f"The program trains several modules: {', '.join(dict.fromkeys(names))}. "
        f"Say which one: write model = {names[0]} before the training loop."
    )


def _from_step(step: Backward, call: Call) -> OwnModel | None:
    """None where the statements cannot be run on their own."""
    try:
        code = compile(ast.Module(list(step.lines.body), []), FILE, "exec")
    except SyntaxError:  # return or continue among them
        return None
    data = {name: value for name, value in step.names.items() if _is_data(value)}
    inputs = _positional(call)
    tensors = [t for value in data.values() for t in _flat(value)]
    target = next((t for t in reversed(tensors) if all(t is not given for given in inputs)), None)

    def loss_of(model: torch.nn.Module, batch: Mapping[str, Any]) -> Callable[[], torch.Tensor]:
        names = {**step.names, **batch}
        if model is not call.module:
            names |= {name: model for name, value in names.items() if value is call.module}
            if all(value is not model for value in names.values()):
                raise OwnModelError(
                    f"{call.name} is no variable of its own. Write model = {call.name} before the loop."
                )

        def run() -> torch.Tensor:
            scope = {"__name__": "__main__", **names}
            exec(code, scope)
            return scalar(scope[RESULT])

        return run

    return OwnModel(call.module, data, inputs, target, loss_of(call.module, data), _rule_name(step), loss_of)


def _rule_name(step: Backward) -> str:
    rule = step.lines.rule
    parts = ast.unparse(rule).split(".") if isinstance(rule, (ast.Name, ast.Attribute)) else []
    value: Any = step.names.get(parts[0]) if parts else None
    for part in parts[1:]:
        value = getattr(value, part, None)
    if isinstance(value, torch.nn.Module) and next(value.parameters(), None) is None:
        return type(value).__name__
    if getattr(value, "__module__", "") == "torch.nn.functional":
        return {"cross_entropy": "cross-entropy", "mse_loss": "mean squared error"}.get(parts[-1], parts[-1])
    return f"the program's own loss, line {step.lines.line}"


def _is_data(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value.ndim > 0 and not isinstance(value, torch.nn.Parameter)
    if isinstance(value, (list, tuple, Mapping)) and value:
        parts = value.values() if isinstance(value, Mapping) else value
        return all(isinstance(part, torch.Tensor) and _is_data(part) for part in parts)
    return False


def _flat(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return list(value.values() if isinstance(value, Mapping) else value)


def _called(ran: Ran) -> Call | None:
    """The module that the program called, where it is the only one."""
    calls = list(ran.seen.calls.values())
    wanted = next((ran.namespace[n] for n in MODELS if isinstance(ran.namespace.get(n), torch.nn.Module)), None)
    if wanted is not None:
        return next((call for call in calls if call.module is wanted), None)
    inner = {id(part) for call in calls for part in call.module.modules() if part is not call.module}
    tops = [call for call in calls if id(call.module) not in inner]
    named = [call for call in tops if call.name.split(".")[-1] in MODELS]
    if len(tops) > 1 and len(named) != 1:
        raise OwnModelError(
            f"The program calls several modules: {', '.join(call.name for call in tops)}. "
            f"Say which one: write model = {tops[0].name} before it is called."
        )
    return (named or tops or [None])[0] if len(tops) > 1 else next(iter(tops), None)


def _from_call(call: Call) -> OwnModel:
    inputs = _positional(call)
    signature = _signature(call.module)
    parameters = list(signature.parameters) if signature else []
    at = next((i for i, name in enumerate(parameters[: len(inputs)]) if name in TARGETS), None)

    def loss_of(model: torch.nn.Module, given: Any) -> Callable[[], torch.Tensor]:
        def run() -> torch.Tensor:
            output = model(*given)
            told = returned_loss(output) if at is not None else None
            return scalar(first_tensor(output).square().mean() if told is None else told)

        return run

    words = "mean square of the output" if at is None else "the loss that the model returns"
    target = None if at is None else inputs[at]
    return OwnModel(call.module, inputs, inputs, target, loss_of(call.module, inputs), words, loss_of)


def _signature(module: torch.nn.Module) -> inspect.Signature | None:
    try:
        return inspect.signature(module.forward)
    except (TypeError, ValueError):
        return None


def _positional(call: Call) -> tuple[Any, ...]:
    """The arguments of the call by position."""
    signature = _signature(call.module)
    if not call.kwargs or signature is None:
        return (*call.args, *call.kwargs.values())
    bound = signature.bind(*call.args, **call.kwargs)
    bound.apply_defaults()
    return bound.args


def _loader(names: Mapping[str, Any]) -> Any:
    """The loader of training data, or the first of all."""
    loaders = {n: v for n, v in names.items() if isinstance(v, torch.utils.data.DataLoader)}
    return next((loaders[n] for n in sorted(loaders, key=lambda n: "train" not in n)), None)


def _with_classes(error: OwnModelError, names: Mapping[str, Any]) -> OwnModelError:
    """Names the classes of a file that only defines a model."""
    classes = [v for v in names.values() if isinstance(v, type) and issubclass(v, torch.nn.Module)]
    classes = [c for c in classes if c.__module__ == "__main__"]
    if not classes or "defines no model" not in str(error) or "several modules" in str(error):
        return error
    last = classes[-1]
    needed = [p.name for p in inspect.signature(last).parameters.values() if p.default is p.empty and p.kind < 2]
    some = ", ".join(c.__name__ for c in classes[-5:])
    return OwnModelError(
        f"The program defines no model, only classes: {some}. Create one at the end: "
        f"model = {last.__name__}({', '.join(needed)}), and batch = (inputs, target)."
    )
