"""Loading a state dict: foreseen from two lists of keys, then done on a copy and compared bit by bit.

What torch does is foreseen by names and shapes alone: a key of the module that the file lacks is missing, one that only the
file has is unexpected, one in both with another shape is mismatched; another dtype is cast without a word. All that fits
is copied before the first complaint is raised, so an error leaves the module half loaded.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from lab.experiments.module_anatomy.actions import ties_of
from lab.experiments.module_anatomy.calls import renaming, same_bits, tensors_of
from lab.instruments.describing.values import dtype_name
from lab.records.anatomy import KeyRow, Keys

NAMES = ("state", "state_dict", "checkpoint", "ckpt", "weights", "sd", "old")
_INSIDE = ("state_dict", "model_state_dict", "model")


def load_into_copy(subject: Any, make: Callable[[], nn.Module]) -> Keys:
    """The chosen file into another of the same model, which ``make`` gives."""
    params = subject.params
    try:
        model = make()
        file = _file(params.file, model, subject.ran.namespace)
    except Exception as error:  # noqa: BLE001 - a class of the program may refuse to be copied
        return Keys((), (), (), error=f"{type(error).__name__}: {str(error)[:300]}", file=params.file)
    return loaded(model, file, params.file, strict=params.strict, assign=params.assign)


def loaded(model: nn.Module, file: Mapping[str, Any], name: str, *, strict: bool, assign: bool) -> Keys:
    """Load ``file`` into ``model``, and what that did."""
    before = {key: (value, value.detach().clone()) for key, value in tensors_of(model) if not is_lazy(value)}
    extra = {key for key, value in model.state_dict().items() if not isinstance(value, torch.Tensor)}
    foreseen = {key: _foresee(key, before, file) for key in dict.fromkeys((*before, *file)) if key not in extra}
    optimizer, ties, error, told = {id(p) for p in model.parameters()}, ties_of(model), "", ""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model.load_state_dict(dict(file), strict=strict, assign=assign)
        except Exception as raised:  # noqa: BLE001 - what torch answers is what is shown
            error = f"{type(raised).__name__}: {str(raised)[:600]}"
        told = str(caught[0].message)[:300] if caught else ""
    now = dict(tensors_of(model))
    rows = tuple(_row(key, foreseen[key], before.get(key), now.get(key), file.get(key)) for key in foreseen)
    held = {id(p) for p in model.parameters()}
    return Keys(
        missing=tuple(k for k, word in foreseen.items() if word == "missing"),
        unexpected=tuple(k for k, word in foreseen.items() if word == "unexpected"),
        mismatched=tuple(k for k, word in foreseen.items() if word == "mismatched"),
        rows=rows,
        file=name,
        error=error,
        loaded=sum(_equal(now.get(key), file.get(key)) for key in before),
        changed=sum(bool(row.changed) for row in rows),
        renamed=renaming(list(before), list(file)),
        ties_before=ties,
        ties_after=ties_of(model),
        stale=len(optimizer - held),
        owned=len(optimizer),
        warned=told,
    )


def _foresee(key: str, before: Mapping[str, Any], file: Mapping[str, Any]) -> str:
    if key not in file:
        return "missing"
    if key not in before:
        return "unexpected"
    here, there = before[key][0], file[key]
    if not isinstance(there, torch.Tensor) or (
        here.shape != there.shape and not (here.dim() == 0 and there.shape == (1,))
    ):
        return "mismatched"
    return "fits" if here.dtype == there.dtype else "cast"


def _equal(now: torch.Tensor | None, there: Any) -> bool:
    """Whether the module's tensor has the file's values, in its own dtype."""
    if now is None or not isinstance(there, torch.Tensor) or now.shape != there.shape or now.is_meta:
        return False
    return torch.equal(now.detach(), there.detach().to(now.dtype))


def _row(key: str, word: str, before: Any, now: torch.Tensor | None, there: Any) -> KeyRow:
    old, copied = before or (None, None)
    lost = 0
    if now is not None and isinstance(there, torch.Tensor) and now.shape == there.shape and not now.is_meta:
        lost = int((torch.isfinite(there) & ~torch.isfinite(now.detach())).sum())
    return KeyRow(
        key,
        _text(old),
        _text(there),
        word,
        None if now is None or copied is None else not same_bits(now, copied),
        None if now is None or old is None else now is old,
        None if now is None else _equal(now, there),
        dtype_name(now.dtype) if now is not None else "",
        lost,
    )


def _text(value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, torch.Tensor):
        return type(value).__name__
    return f"{list(value.shape)} {dtype_name(value.dtype)}"


def _file(name: str, model: nn.Module, names: Mapping[str, Any]) -> dict[str, Any]:
    own = {k: _other(v.detach()) if isinstance(v, torch.Tensor) else v for k, v in model.state_dict().items()}
    if name == "the program's":
        return _programs(names)
    return _ALTERED[name](own)


def _other(value: torch.Tensor) -> torch.Tensor:
    """As a later state of the same model: every number another."""
    return value + 1 if value.dtype != torch.bool else ~value


def _programs(names: Mapping[str, Any]) -> dict[str, Any]:
    for name in NAMES:
        value = names.get(name)
        if isinstance(value, Mapping):
            inner = next((value[k] for k in _INSIDE if isinstance(value.get(k), Mapping)), value)
            return {k: copy.copy(v) for k, v in inner.items()}
    raise ValueError(f"The program has no state dict under one of these names: {', '.join(NAMES)}.")


def _wider(own: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The last matrix of the file has one row more, and so has the bias beside it."""
    matrices = [k for k, v in own.items() if isinstance(v, torch.Tensor) and v.dim() >= 2]
    if not matrices:
        return own
    last = matrices[-1]
    sides = (last, f"{last.rpartition('.')[0]}.bias".lstrip("."))
    return {k: torch.cat([v, v[:1]]) if k in sides and v.dim() else v for k, v in own.items()}


def _cast(dtype: torch.dtype) -> Any:
    return lambda own: {
        k: v.to(dtype) if isinstance(v, torch.Tensor) and v.is_floating_point() else v for k, v in own.items()
    }


_ALTERED: dict[str, Any] = {
    "its own": lambda own: own,
    "with a prefix": lambda own: {f"module.{k}": v for k, v in own.items()},
    "one layer wider": _wider,
    "half precision": _cast(torch.float16),
    "float64": _cast(torch.float64),
    "one key missing": lambda own: dict(list(own.items())[:-1]),
    "one key more": lambda own: own | {"extra.weight": torch.zeros(2)},
}
