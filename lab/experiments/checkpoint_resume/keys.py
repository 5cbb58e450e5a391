"""Which names of a state dict reach a model, and whose optimizer state lands where."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from lab.experiments.checkpoint_resume.schema import Params
from lab.records.resume import Key, Keys, Position

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_HEAD, _OTHER_HEAD = 4, 6


def a_model(head: int = _HEAD) -> nn.Sequential:
    """Two square layers of equal shape, and a head."""
    return nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 8), nn.Linear(8, head))


def a_file(names: str) -> dict[str, torch.Tensor]:
    """The state dict as it comes out of the file."""
    torch.manual_seed(7)
    model = a_model(_OTHER_HEAD if names == "another head" else _HEAD)
    state = {k: v.clone() for k, v in model.state_dict().items()}
    if names == "one layer less":
        return {k: v for k, v in state.items() if not k.startswith("3.")}
    return {f"{names}{k}": v for k, v in state.items()} if names.endswith(".") else state


def load_keys(params: Params) -> Keys:
    """Load a file whose names differ as asked, and look at the model afterwards."""
    torch.manual_seed(8)
    with torch.device("meta" if params.meta else params.device):
        model = a_model()
    return loaded_keys(model, a_file(params.names), strict=params.strict, assign=params.assign)


def loaded_keys(model: nn.Module, file: Mapping[str, Any], *, strict: bool, assign: bool) -> Keys:
    """Call ``load_state_dict`` and compare every tensor of the model with the file's."""
    shapes = {name: tuple(t.shape) for name, t in model.state_dict().items()}
    try:
        model.load_state_dict(dict(file), strict=strict, assign=assign)
    except RuntimeError as refused:
        return compare_keys(model, file, shapes, error=plain(str(refused)))
    return compare_keys(model, file, shapes)


def compare_keys(
    model: nn.Module, file: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]], error: str = ""
) -> Keys:
    """What of ``file`` the model holds now. ``shapes``: of its tensors before."""
    now = {k: t for k, t in model.state_dict().items() if isinstance(t, torch.Tensor)}
    rows = tuple(_rows(shapes, file))
    return Keys(
        matched=sum(row.state == "loaded" for row in rows),
        missing=tuple(row.name for row in rows if row.state == "missing"),
        unexpected=tuple(row.name for row in rows if row.state == "unexpected"),
        prefix=prefix_of(list(file), list(shapes)),
        changed=sum(_equal(t, file.get(name)) for name, t in now.items()),
        on_meta=sum(t.device.type == "meta" for t in now.values()),
        error=error,
        rows=rows,
    )


def _equal(here: torch.Tensor, there: Any) -> bool:
    """Whether the model holds the values of the file."""
    if not isinstance(there, torch.Tensor) or "meta" in (here.device.type, there.device.type):
        return False
    return here.shape == there.shape and torch.equal(here.detach().cpu(), there.detach().cpu().to(here.dtype))


def _rows(shapes: Mapping[str, tuple[int, ...]], file: Mapping[str, Any]) -> list[Key]:
    rows = []
    for name in dict.fromkeys([*shapes, *file]):
        in_file = tuple(file[name].shape) if isinstance(file.get(name), torch.Tensor) else None
        in_model = shapes.get(name)
        if name not in shapes:
            rows.append(Key(name, "unexpected", in_file, None))
        elif name not in file:
            rows.append(Key(name, "missing", None, in_model))
        else:
            rows.append(Key(name, "loaded" if in_file == in_model else "another shape", in_file, in_model))
    return rows


def prefix_of(file: list[str], model: list[str]) -> str:
    """What every name of ``file`` begins with, where without it at least one is a name of ``model``; or "" ."""
    pairs = zip(min(file, default=""), max(file, default=""), strict=False)
    same = [a for a, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)]
    heads = ["".join(same[:at]) for at in range(len(same), 0, -1) if same[at - 1] == "."]
    known = set(model)
    return next((head for head in heads if any(name[len(head) :] in known for name in file)), "")


def plain(message: str) -> str:
    """torch's message without the codes that make a terminal write bold."""
    return _ANSI.sub("", message)


def positions(params: Params) -> tuple[Position, ...]:
    """Load an optimizer's state into one that got the same parameters in another order."""
    torch.manual_seed(9)
    model = a_model()
    names = [name for name, _ in model.named_parameters()]
    by_name = dict(model.named_parameters())
    saved = torch.optim.AdamW(model.parameters())
    model(torch.randn(16, 8)).square().mean().backward()
    saved.step()
    state = saved.state_dict()
    order = _ordered(names, params.order)
    fresh = torch.optim.AdamW([by_name[name] for name in order])
    fresh.load_state_dict(state)
    return tuple(
        Position(
            position=at,
            saved_for=was,
            loaded_into=now,
            saved_shape=tuple(state["state"][at]["exp_avg"].shape),
            shape=tuple(by_name[now].shape),
            norm=float(fresh.state[by_name[now]]["exp_avg"].norm()),
        )
        for at, (was, now) in enumerate(zip(names, order, strict=True))
    )


def _ordered(names: list[str], order: str) -> list[str]:
    if order == "reversed":
        return names[::-1]
    if order == "layers swapped":  # the two square layers change places
        swap = {"0": "2", "2": "0"}
        return [f"{swap.get(name[0], name[0])}{name[1:]}" for name in names]
    return names
