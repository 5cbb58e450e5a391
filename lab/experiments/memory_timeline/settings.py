"""Which settings are set beside the chosen one, and which changes are tried on its peak."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from lab.contract import ParamsError
from lab.experiments.memory_timeline.schema import Params


@dataclass(frozen=True, eq=False)
class Setting:
    """A caption, and the knob values that make it and by which it is found again."""

    name: str
    knobs: dict[str, Any]
    square_root: bool = False
    """Its segments have √n of the n blocks."""

    def of(self, params: Params) -> Params:
        return replace(params, **self.knobs)


def forward_only(params: Params) -> bool:
    """No backward and no optimizer runs."""
    return params.mode != "train" or params.leak == "loss_without_backward"


def compared(params: Params) -> list[Setting]:
    """What belongs on one axis with the chosen setting: the question decides.

    Leaks beside each other, modes beside each other, ways of accumulating, lengths of segments; else mixed precision
    and checkpointing, each alone and both.
    """
    if params.leak != "none":
        found = [Setting(_LEAKS[leak], {"leak": leak}) for leak in ("none", "item", "loss", "loss_without_backward")]
    elif params.mode != "train":
        found = [Setting(mode, {"mode": mode}) for mode in ("no_grad", "inference_mode", "forgot")]
        found = [Setting(s.name.replace("forgot", "forgot to switch gradients off"), s.knobs) for s in found]
    elif params.accumulate > 1:
        whole, each = {"accumulate": 1, "one_backward": False}, {"one_backward": False}
        parts = f"{params.accumulate} micro-batches"
        found = [
            Setting("the whole batch at once", whole),
            Setting(f"{parts}, backward for each", each),
            Setting(f"{parts}, one backward at the end", {"one_backward": True}),
        ]
    elif params.checkpoint != "none" and params.model != "own":
        found = [Setting("no checkpointing", {"checkpoint": "none"}), *_segments(params)]
    else:
        found = _precision_and_checkpoint(params)
    if all(setting.of(params) != params for setting in found):
        found.append(Setting("as set", {}))
    return found


_LEAKS = {
    "none": "nothing kept",
    "item": "losses.append(loss.item())",
    "loss": "losses.append(loss) after backward",
    "loss_without_backward": "losses.append(loss), no backward",
}


def _segments(params: Params) -> Iterator[Setting]:
    root = max(1, round(math.sqrt(params.layers)))
    lengths = sorted({1, root, params.every if params.checkpoint == "every" else 1})
    for every in lengths:
        name = "every block" if every == 1 else f"every {every} blocks" + (" (√n)" if every == root else "")
        yield Setting(name, {"checkpoint": "every", "every": every}, square_root=every == root)
    yield Setting("all blocks in one", {"checkpoint": "all"})


def _precision_and_checkpoint(params: Params) -> list[Setting]:
    low = params.precision if params.precision != "fp32" else "bf16_autocast"
    how = params.checkpoint if params.checkpoint != "none" else "every"
    name = {"bf16_autocast": "bf16 autocast", "fp16_autocast": "fp16 autocast", "bf16": "pure bf16"}[low]
    plain, both = {"precision": "fp32", "checkpoint": "none"}, {"precision": low, "checkpoint": how}
    return [
        Setting("fp32", plain),
        Setting(name, plain | {"precision": low}),
        Setting("fp32, checkpoint", plain | {"checkpoint": how}),
        Setting(f"{name}, checkpoint", both),
    ]


def changes(params: Params) -> list[Setting]:
    """Changes worth trying on this peak, one knob each, and at the end the ones that go together."""
    candidates = [Setting("mixed precision (bf16 autocast)", {"precision": "bf16_autocast"})]
    if params.precision != "fp32":
        candidates = [Setting("full precision (fp32)", {"precision": "fp32"})]
    if forward_only(params):
        candidates += [
            Setting("torch.no_grad()", {"mode": "no_grad", "leak": "none"}),
            Setting("losses.append(loss.item())", {"leak": "item", "mode": "no_grad"}),
        ]
    else:
        candidates += _training_changes(params)
    candidates.append(Setting("half the batch", {"batch": max(1, params.batch // 2)}))
    return [setting for setting in candidates if _possible(setting, params)]


def _training_changes(params: Params) -> Iterator[Setting]:
    yield Setting("checkpoint every block", {"checkpoint": "every", "every": 1})
    yield Setting("no checkpointing", {"checkpoint": "none"})
    twice = {"accumulate": 2 * params.accumulate, "one_backward": False}
    yield Setting(f"{2 * params.accumulate} micro-batches, same batch", twice)
    yield Setting("a backward for each micro-batch", {"one_backward": False})
    if params.optimizer in ("adam", "adamw"):
        yield Setting("fused optimizer", {"optimizer_impl": "fused"})
        yield Setting("SGD instead of Adam", {"optimizer": "sgd"})
    yield Setting("for-loop optimizer", {"optimizer_impl": "forloop"})
    yield Setting("gradients set to None before the forward", {"set_to_none": True, "zero_grad": "before_forward"})
    yield Setting("let the graph go (no retain_graph)", {"retain_graph": False})
    yield Setting("keep loss.item() only", {"leak": "item"}) if params.leak == "loss" else Setting("", {})
    both = {"precision": "bf16_autocast", "checkpoint": "every", "every": 1}
    yield Setting("mixed precision and checkpointing", both)
    if params.optimizer in ("adam", "adamw"):
        lean = {"accumulate": min(params.batch, 4), "one_backward": False, "optimizer_impl": "fused"}
        yield Setting(f"both, fused, {lean['accumulate']} micro-batches", both | lean)


def _possible(setting: Setting, params: Params) -> bool:
    if params.model == "own" and "batch" in setting.knobs:
        return False
    try:
        changed = setting.of(params)
    except ParamsError:
        return False
    return changed != params and bool(setting.name)
