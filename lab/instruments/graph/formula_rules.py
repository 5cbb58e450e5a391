"""Derivatives of the common operations: for an input of a node, a text and the same in float64.

A rule reads only what the node kept and the gradient that came. What it assumes beyond that (which side a bound belongs
to, how equal maxima share) holds only where its numbers are those of the engine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

Values = Mapping[str, Any]
"""What the node kept, by slot, with tensors in float64; the incoming gradient as ``grad``; the input as ``slot``; and
``shapes``, of what was handed to each input."""

EVERY = -1
"""The slot of a rule for all inputs alike."""


class Rule(NamedTuple):
    text: str | Callable[[Values], str]
    derivative: Callable[[Values], Any]
    each: bool = True
    """Whether an element depends on the same element of its operands only, so that its numbers can be put in."""


def _dims(v: Values) -> list[int]:
    """The reduced dims, all of them where none was named."""
    count, dim = len(_sizes(v)), v.get("dim")
    named = [dim] if isinstance(dim, int) else list(dim or ())
    return sorted(d % count for d in named) if named and count else list(range(count))


def _sizes(v: Values) -> tuple[int, ...]:
    return tuple(v["self"].shape if isinstance(v.get("self"), torch.Tensor) else v["self_sym_sizes"])


def _whole(v: Values, key: str = "grad") -> torch.Tensor:
    """A reduced tensor with its reduced dims of size 1 put back."""
    reduced: torch.Tensor = v[key]
    if reduced.dim() < len(_sizes(v)):
        for d in _dims(v):
            reduced = reduced.unsqueeze(d)
    return reduced


def _count(v: Values) -> int:
    return math.prod(_sizes(v)[d] for d in _dims(v))


def _spread(v: Values) -> torch.Tensor:
    return _whole(v).expand(_sizes(v))


def _along(v: Values) -> str:
    dims = _dims(v)
    return f"along dim{'s' * (len(dims) > 1)} {', '.join(map(str, dims))}"


def _is_extreme(v: Values) -> torch.Tensor:
    return v["self"] == _whole(v, "result")


def _ties(v: Values) -> torch.Tensor:
    return _is_extreme(v).sum(_dims(v), keepdim=True) if v["self"].dim() else torch.ones(())


def _extreme_text(v: Values) -> str:
    tied = ", shared where equal" if bool((_ties(v) > 1).any()) else ""
    return "{grad} where {self} is {result}" + tied + ", 0 elsewhere"


def _at(v: Values, place: Any) -> torch.Tensor:
    empty = torch.zeros(_sizes(v), dtype=torch.float64)
    empty[(slice(None),) * (v["dim"] % empty.dim()) + (place,)] = v["grad"]
    return empty


def _slice(v: Values) -> slice:
    return slice(*slice(v["start"], v["end"], v["step"]).indices(_sizes(v)[v["dim"]]))


def _slice_text(v: Values) -> str:
    s = _slice(v)
    step = f":{s.step}" if s.step != 1 else ""
    return f"{{grad}} at {s.start}:{s.stop}{step} of dim {v['dim'] % len(_sizes(v))}, 0 elsewhere"


def _cat_start(v: Values) -> int:
    return sum(shape[v["dim"]] for shape in v["shapes"][: v["slot"]])


def _cat_text(v: Values) -> str:
    start = _cat_start(v)
    return f"{{grad}}[{start}:{start + v['shapes'][v['slot']][v['dim']]}] of dim {v['dim'] % v['grad'].dim()}"


def _scattered(v: Values) -> torch.Tensor:
    return torch.zeros(_sizes(v), dtype=torch.float64).scatter_add(v["dim"], _whole(v, "index"), v["grad"])


def _inside(v: Values) -> Any:
    low, high = v.get("min"), v.get("max")
    mask = torch.ones_like(v["self"], dtype=torch.bool)
    mask = mask if low is None else mask & (v["self"] >= low)
    return (mask if high is None else mask & (v["self"] <= high)) * v["grad"]


def _inside_text(v: Values) -> str:
    low = "" if v.get("min") is None else "{min} ≤ "
    return "(" + low + "{self}" + ("" if v.get("max") is None else " ≤ {max}") + ") · {grad}"


def _freedom(v: Values) -> float:
    correction = v.get("correction")
    return _count(v) - (1 if correction is None else correction)


def _deviation(v: Values) -> torch.Tensor:
    return v["self"] - (v["self"].mean(_dims(v), keepdim=True) if v["self"].dim() else v["self"])


def _normalized(v: Values) -> torch.Tensor:
    return (v["input"] - v["result1"]) * v["result2"]


def _layer_norm(v: Values) -> torch.Tensor:
    dims = list(range(-len(v["normalized_shape"]), 0))
    x, g = _normalized(v), v["grad"] if v.get("weight") is None else v["grad"] * v["weight"]
    return v["result2"] * (g - g.mean(dims, keepdim=True) - x * (g * x).mean(dims, keepdim=True))


def _layer_norm_text(v: Values) -> str:
    g, meaning = ("{grad}", "") if v.get("weight") is None else ("g", "g = {weight} · {grad}, ")
    return f"({g} − mean {g} − n · mean({g} · n)) / std, with {meaning}n = ({{input}} − mean) / std"


def _parts(v: Values) -> int:
    return v["self"].numel() if v["reduction"] == 1 else 1


def _mse_text(sign: str) -> Callable[[Values], str]:
    return lambda v: sign + "2 · ({self} − {target}) · {grad}" + (f" / {_parts(v)}" if _parts(v) > 1 else "")


def _halves(more: Callable[[Any, Any], Any], sign: str, a: str, b: str) -> Rule:
    def text(v: Values) -> str:
        tied = ", half where equal" if bool((v[a] == v[b]).any()) else ""
        return f"{{grad}} where {{{a}}} {sign} {{{b}}}{tied}, 0 elsewhere"

    return Rule(text, lambda v: (more(v[a], v[b]) + (v[a] == v[b]) / 2) * v["grad"], False)


_GRAD = Rule("{grad}", lambda v: v["grad"])
_TIMES_EXPONENT = Rule(
    "{exponent} · {self}^({exponent} − 1) · {grad}",
    lambda v: v["exponent"] * v["self"] ** (v["exponent"] - 1) * v["grad"],
)
_EXTREME = Rule(_extreme_text, lambda v: _is_extreme(v) * _whole(v) / _ties(v), False)
_RESHAPED = Rule("{grad} in the shape of ∂{to}", lambda v: v["grad"].reshape(_sizes(v)), False)


def _pick(which: str) -> Rule:
    return Rule(
        lambda v: f"{{grad}} at the {which} {_along(v)}, 0 elsewhere",
        lambda v: (
            torch.zeros(_sizes(v), dtype=torch.float64).scatter(v["dim"], _whole(v, "indices"), _whole(v))
            if _sizes(v)
            else v["grad"]
        ),
        False,
    )


RULES: dict[tuple[str, int], Rule] = {
    # element by element
    ("MulBackward0", 0): Rule("{other} · {grad}", lambda v: v["other"] * v["grad"]),
    ("MulBackward0", 1): Rule("{self} · {grad}", lambda v: v["self"] * v["grad"]),
    ("DivBackward0", 0): Rule("{grad} / {other}", lambda v: v["grad"] / v["other"]),
    ("DivBackward0", 1): Rule("−{grad} · {self} / {other}²", lambda v: -v["grad"] * v["self"] / v["other"] ** 2),
    ("AddBackward0", 0): _GRAD,
    ("AddBackward0", 1): Rule("{alpha} · {grad}", lambda v: v["alpha"] * v["grad"]),
    ("SubBackward0", 0): _GRAD,
    ("SubBackward0", 1): Rule("−{alpha} · {grad}", lambda v: -v["alpha"] * v["grad"]),
    ("RsubBackward0", 0): Rule("−{alpha} · {grad}", lambda v: -v["alpha"] * v["grad"]),
    ("RsubBackward0", 1): _GRAD,
    ("RsubBackward1", 0): Rule("−{alpha} · {grad}", lambda v: -v["alpha"] * v["grad"]),
    ("NegBackward0", 0): Rule("−{grad}", lambda v: -v["grad"]),
    ("PowBackward0", 0): _TIMES_EXPONENT,
    ("PowBackward1", 0): _TIMES_EXPONENT,
    ("PowBackward1", 1): Rule("{result} · ln({self}) · {grad}", lambda v: v["result"] * v["self"].log() * v["grad"]),
    ("PowBackward2", 0): Rule(
        "{result} · ln({self}) · {grad}", lambda v: v["result"] * math.log(v["self"]) * v["grad"]
    ),
    ("ExpBackward0", 0): Rule("{result} · {grad}", lambda v: v["result"] * v["grad"]),
    ("LogBackward0", 0): Rule("{grad} / {self}", lambda v: v["grad"] / v["self"]),
    ("Log1PBackward0", 0): Rule("{grad} / (1 + {self})", lambda v: v["grad"] / (1 + v["self"])),
    ("SqrtBackward0", 0): Rule("{grad} / (2 · {result})", lambda v: v["grad"] / (2 * v["result"])),
    ("RsqrtBackward0", 0): Rule("−{result}³ · {grad} / 2", lambda v: -(v["result"] ** 3) * v["grad"] / 2),
    ("ReciprocalBackward0", 0): Rule("−{result}² · {grad}", lambda v: -(v["result"] ** 2) * v["grad"]),
    ("SigmoidBackward0", 0): Rule(
        "{result} · (1 − {result}) · {grad}", lambda v: v["result"] * (1 - v["result"]) * v["grad"]
    ),
    ("TanhBackward0", 0): Rule("(1 − {result}²) · {grad}", lambda v: (1 - v["result"] ** 2) * v["grad"]),
    ("ReluBackward0", 0): Rule("({result} > 0) · {grad}", lambda v: (v["result"] > 0) * v["grad"]),
    ("SinBackward0", 0): Rule("cos({self}) · {grad}", lambda v: v["self"].cos() * v["grad"]),
    ("CosBackward0", 0): Rule("−sin({self}) · {grad}", lambda v: -v["self"].sin() * v["grad"]),
    ("AbsBackward0", 0): Rule("sign({self}) · {grad}", lambda v: v["self"].sign() * v["grad"]),
    ("ClampBackward0", 0): Rule(_inside_text, _inside),
    ("ClampBackward0", 1): Rule("({self} < {min}) · {grad}", lambda v: (v["self"] < v["min"]) * v["grad"]),
    ("ClampBackward0", 2): Rule("({self} > {max}) · {grad}", lambda v: (v["self"] > v["max"]) * v["grad"]),
    ("ClampBackward1", 0): Rule(_inside_text, _inside),
    ("ClampMinBackward0", 0): Rule(_inside_text, _inside),
    ("ClampMaxBackward0", 0): Rule(_inside_text, _inside),
    ("MaximumBackward0", 0): _halves(torch.gt, ">", "self", "other"),
    ("MaximumBackward0", 1): _halves(torch.gt, ">", "other", "self"),
    ("MinimumBackward0", 0): _halves(torch.lt, "<", "self", "other"),
    ("MinimumBackward0", 1): _halves(torch.lt, "<", "other", "self"),
    ("WhereBackward0", 0): Rule(
        "{grad} where {condition} is true, 0 elsewhere", lambda v: v["condition"] * v["grad"], False
    ),
    ("WhereBackward0", 1): Rule(
        "{grad} where {condition} is false, 0 elsewhere", lambda v: ~v["condition"] * v["grad"], False
    ),
    ("MaskedFillBackward0", 0): Rule(
        "{grad} where {mask} is false, 0 elsewhere", lambda v: ~v["mask"] * v["grad"], False
    ),
    ("MseLossBackward0", 0): Rule(_mse_text(""), lambda v: 2 * (v["self"] - v["target"]) * v["grad"] / _parts(v)),
    ("MseLossBackward0", 1): Rule(_mse_text("−"), lambda v: -2 * (v["self"] - v["target"]) * v["grad"] / _parts(v)),
    # products of matrices
    ("MmBackward0", 0): Rule("{grad} @ {mat2}ᵀ", lambda v: v["grad"] @ v["mat2"].T, False),
    ("MmBackward0", 1): Rule("{self}ᵀ @ {grad}", lambda v: v["self"].T @ v["grad"], False),
    ("BmmBackward0", 0): Rule("{grad} @ {mat2}ᵀ", lambda v: v["grad"] @ v["mat2"].mT, False),
    ("BmmBackward0", 1): Rule("{self}ᵀ @ {grad}", lambda v: v["self"].mT @ v["grad"], False),
    ("MvBackward0", 0): Rule("{grad} {vec}ᵀ (outer product)", lambda v: torch.outer(v["grad"], v["vec"]), False),
    ("MvBackward0", 1): Rule("{self}ᵀ @ {grad}", lambda v: v["self"].T @ v["grad"], False),
    ("DotBackward0", 0): Rule("{tensor} · {grad}", lambda v: v["tensor"] * v["grad"]),
    ("DotBackward0", 1): Rule("{self} · {grad}", lambda v: v["self"] * v["grad"]),
    ("AddmmBackward0", 0): Rule("{beta} · {grad}", lambda v: v["beta"] * v["grad"]),
    ("AddmmBackward0", 1): Rule("{alpha} · {grad} @ {mat2}ᵀ", lambda v: v["alpha"] * v["grad"] @ v["mat2"].T, False),
    ("AddmmBackward0", 2): Rule("{alpha} · {mat1}ᵀ @ {grad}", lambda v: v["alpha"] * v["mat1"].T @ v["grad"], False),
    # over dims
    ("SumBackward0", 0): Rule("{grad} for each element", _spread),
    ("SumBackward1", 0): Rule(lambda v: f"{{grad}} for each element {_along(v)}", _spread, False),
    ("MeanBackward0", 0): Rule("{grad} / {self_sym_numel} for each element", lambda v: _spread(v) / _count(v)),
    ("MeanBackward1", 0): Rule(
        lambda v: f"{{grad}} / {_count(v)} for each element {_along(v)}", lambda v: _spread(v) / _count(v), False
    ),
    **{(f"{name}Backward{k}", 0): _EXTREME for name, k in [("Amax", 0), ("Amin", 0), ("Max", 1), ("Min", 1)]},
    ("MaxBackward0", 0): _pick("maximum"),
    ("MinBackward0", 0): _pick("minimum"),
    ("VarBackward0", 0): Rule(
        lambda v: f"2 · ({{self}} − mean) · {{grad}} / {_freedom(v):g}",
        lambda v: 2 * _deviation(v) * _whole(v) / _freedom(v),
        False,
    ),
    ("StdBackward0", 0): Rule(
        lambda v: f"({{self}} − mean) · {{grad}} / ({_freedom(v):g} · {{result}})",
        lambda v: _deviation(v) * _whole(v) / (_freedom(v) * _whole(v, "result")),
        False,
    ),
    ("SoftmaxBackward0", 0): Rule(
        "{result} · ({grad} − sum of {result} · {grad} along dim {dim})",
        lambda v: v["result"] * (v["grad"] - (v["result"] * v["grad"]).sum(v["dim"], keepdim=True)),
        False,
    ),
    ("LogSoftmaxBackward0", 0): Rule(
        "{grad} − exp({result}) · sum of {grad} along dim {dim}",
        lambda v: v["grad"] - v["result"].exp() * v["grad"].sum(v["dim"], keepdim=True),
        False,
    ),
    ("LogsumexpBackward0", 0): Rule(
        "exp({self} − {result}) · {grad}", lambda v: (v["self"] - _whole(v, "result")).exp() * _whole(v), False
    ),
    ("NativeLayerNormBackward0", 0): Rule(_layer_norm_text, _layer_norm, False),
    ("NativeLayerNormBackward0", 1): Rule(
        "{grad} · ({input} − mean) / std", lambda v: v["grad"] * _normalized(v), False
    ),
    ("NativeLayerNormBackward0", 2): _GRAD,
    # places
    ("GatherBackward0", 0): Rule("{grad} added at the places it was read from, 0 elsewhere", _scattered, False),
    ("IndexSelectBackward0", 0): Rule(
        "{grad} added at the places it was read from, 0 elsewhere",
        lambda v: torch.zeros(_sizes(v), dtype=torch.float64).index_add(v["dim"], v["index"], v["grad"]),
        False,
    ),
    ("SelectBackward0", 0): Rule(
        "{grad} at index {index} of dim {dim}, 0 elsewhere", lambda v: _at(v, v["index"]), False
    ),
    ("SliceBackward0", 0): Rule(_slice_text, lambda v: _at(v, _slice(v)), False),
    ("CatBackward0", EVERY): Rule(
        _cat_text,
        lambda v: v["grad"].narrow(v["dim"], _cat_start(v), v["shapes"][v["slot"]][v["dim"]]),
        False,
    ),
    ("StackBackward0", EVERY): Rule(
        "{grad} at index {slot} of dim {dim}", lambda v: v["grad"].select(v["dim"], v["slot"]), False
    ),
    ("TBackward0", 0): Rule("{grad}ᵀ", lambda v: v["grad"].T, False),
    ("ViewBackward0", 0): _RESHAPED,
    ("UnsafeViewBackward0", 0): _RESHAPED,
    ("ExpandBackward0", 0): _GRAD,
}

INPUTS: dict[str, tuple[str, ...]] = {
    "MmBackward0": ("self", "mat2"),
    "BmmBackward0": ("self", "mat2"),
    "MvBackward0": ("self", "vec"),
    "DotBackward0": ("self", "tensor"),
    "AddmmBackward0": ("self", "mat1", "mat2"),
    "PowBackward1": ("self", "exponent"),
    "PowBackward2": ("exponent",),
    "MseLossBackward0": ("self", "target"),
    "ClampBackward0": ("self", "min", "max"),
    "NativeLayerNormBackward0": ("input", "weight", "bias"),
}
"""What the inputs of a node are called among its values, where it is not ``self`` and ``other``."""

PLAIN = (
    "alpha",
    "beta",
    "correction",
    "dim",
    "end",
    "exponent",
    "index",
    "max",
    "min",
    "normalized_shape",
    "reduction",
    "self",
    "self_sym_numel",
    "self_sym_sizes",
    "start",
    "step",
)
"""The numbers that the rules read; a node may keep a tensor under the same name."""


def rule_of(node: str, slot: int) -> Rule | None:
    return RULES.get((node, slot)) or RULES.get((node, EVERY))


def has_rules(node: str) -> bool:
    return any(name == node for name, _ in RULES)
