"""Bytes and cost of each block, read from a run that checkpoints none and one that checkpoints each."""

from __future__ import annotations

import statistics
import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

from torch import nn
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

from lab.experiments.memory_timeline.clock import prepared
from lab.experiments.memory_timeline.plan import Block, Chain, Side
from lab.experiments.memory_timeline.schema import Params
from lab.experiments.memory_timeline.subject import build
from lab.experiments.memory_timeline.tracking import Tracked
from lab.program import run as program
from lab.torch_private import FakeMode, operator
from lab.workloads.checkpointing import are_equal, blocks_of

_REPEATS = 5
_ATTENTION = operator("aten._scaled_dot_product_flash_attention_for_cpu.default").overloadpacket


class NoPlanError(Exception):
    """Why blocks cannot be priced."""


class Priced(NamedTuple):
    """A block as it ran: its number among ``blocks_of``, and what one more forward costs."""

    number: int
    path: str
    cost: float


def seconds_of_blocks(params: Params) -> list[Priced]:
    """Median seconds of each block's forward in single steps without the instrument; equal blocks share one number."""
    with prepared([replace(params, checkpoint="none")]) as (training,):
        model = training.task.model
        calls = _calls(model, time.perf_counter)
        for _ in range(_REPEATS + 1):
            training.run(1)
        training.kept.clear()
    return _shared(model, calls, lambda spent: statistics.median(spent[1:]), _REPEATS + 1)


def flops_of_blocks(params: Params) -> list[Priced]:
    """FLOPs of each block's forward on tensors without data, and 1 for being run at all."""
    counter = FlopCounterMode(display=False, custom_mapping={_ATTENTION: _attention})
    with program.torch_defaults(params.seed, params.device), FakeMode():
        training = build(replace(params, checkpoint="none", steps=1)).training
        model = training.task.model
        calls = _calls(model, counter.get_total_flops)
        with counter:
            training.run(1)
    return _shared(model, calls, lambda spent: spent[0] + 1, 1)


def _attention(q: Any, k: Any, v: Any, *args: Any, out_shape: Any = None, **kwargs: Any) -> int:
    return sdpa_flop_count(q, k, v)


def _calls(model: nn.Module, read: Any) -> dict[str, list[float]]:
    """Path -> what ``read`` gained in each forward of the block, filled while the model runs."""
    spent: dict[str, list[float]] = defaultdict(list)
    begun: list[float] = []
    for path, block in blocks_of(model).items():
        block.register_forward_pre_hook(lambda *_: begun.append(read()))
        block.register_forward_hook(lambda *_, path=path: spent[path].append(read() - begun.pop()))
    return spent


def _shared(model: nn.Module, calls: Mapping[str, list[float]], of: Any, steps: int) -> list[Priced]:
    blocks = blocks_of(model)
    if len(calls) < 2:
        raise NoPlanError("The model has no list of two or more blocks that run.")
    if any(len(spent) != steps for spent in calls.values()):
        raise NoPlanError("A block runs more than once in a step, so its bytes have no one place.")
    numbers = {path: number for number, path in enumerate(blocks)}
    alike: dict[str, list[str]] = {}
    for path in calls:
        first = next((other for other in alike if are_equal(blocks[other], blocks[path])), path)
        alike.setdefault(first, []).append(path)
    costs = {path: statistics.median(of(calls[p]) for p in same) for same in alike.values() for path in same}
    return [Priced(numbers[path], path, costs[path]) for path in calls]


class _Windows(NamedTuple):
    """Bytes of each block in one run, in the order of the forward, and what is most around them."""

    sides: list[Side]
    elsewhere: int


def chain_of(priced: Sequence[Priced], plain: Tracked, checkpointed: Tracked) -> Chain:
    """The chain of blocks from a run without and a run with all blocks checkpointed. Raises NoPlanError."""
    paths = [block.path for block in priced]
    one, other = _windows(plain, paths), _windows(checkpointed, paths)
    sides = zip(priced, one.sides, other.sides, strict=True)
    return Chain(
        tuple(Block(p.path, p.cost, a, b) for p, a, b in sides),
        max(one.elsewhere, other.elsewhere),
    )


def _windows(tracked: Tracked, paths: Sequence[str]) -> _Windows:
    """The last step cut into windows: from the first operation of a block to that of the next one."""
    book = tracked.reading
    last = len(tracked.step_ends) - 1
    first: dict[bool, dict[str, int]] = {False: {}, True: {}}
    end: dict[str, int] = {}
    of_step = {False: [], True: []}
    for op, operation in enumerate(book.operations):
        if operation.step != last or operation.phase not in ("forward", "backward", "recompute"):
            continue
        back = operation.phase != "forward"
        of_step[back].append(op)
        path = next((p for p in paths if _inside(operation.module, p)), None)
        if path:
            first[back].setdefault(path, op)
            if not back:
                end[path] = op
    _require_one_after_the_other(first, end, paths, of_step)
    return _measured(tracked, paths, first, of_step)


def _require_one_after_the_other(first: Any, end: dict[str, int], paths: Sequence[str], of_step: Any) -> None:
    if any(len(first[back]) < len(paths) for back in (False, True)):
        raise NoPlanError("Some blocks ran no operation of their own in forward or backward.")
    starts = [first[False][p] for p in paths]
    if any(end[p] >= start for p, start in zip(paths[:-1], starts[1:], strict=True)):
        raise NoPlanError("The blocks do not run one after the other.")
    returns = [first[True][p] for p in paths]
    if returns != sorted(returns, reverse=True):
        raise NoPlanError("Backward does not run the blocks in the reverse order.")


def _measured(tracked: Tracked, paths: Sequence[str], first: Any, of_step: Any) -> _Windows:
    book, ended = tracked.reading, _ends(tracked)
    highest = {op: book.totals[event] for op, event in book.instants}
    forward, backward = of_step[False], of_step[True]
    starts, returns = ([first[back][path] for path in paths] for back in (False, True))
    over = 1 + max(op for op in forward if any(_inside(book.operations[op].module, path) for path in paths))
    before = [book.totals[ended[op - 1]] for op in (*starts, over)]
    kept = [b - a for a, b in pairwise(before)]
    kept_back = _alive_at(tracked, ended[forward[-1]], [*starts, over])
    stops = [*starts[1:], forward[-1] + 1]  # what follows the last block counts as its own
    return_stops = [backward[-1] + 1, *returns[:-1]]
    returns[-1] = min(returns[-1], backward[0])
    sides, so_far, so_far_back = [], 0, 0
    for i in range(len(paths)):
        most = max(highest[op] for op in range(starts[i], stops[i]))
        most_back = max(highest[op] for op in range(returns[i], return_stops[i]))
        sides.append(Side(kept[i], kept_back[i], most - so_far, most_back - so_far_back))
        so_far, so_far_back = so_far + kept[i], so_far_back + kept_back[i]
    changed = range(starts[0], backward[-1] + 1)
    last = book.operations[starts[0]].step
    elsewhere = max(size for op, size in highest.items() if _is_elsewhere(book.operation(op), last, op in changed))
    return _Windows(sides, elsewhere)


def _is_elsewhere(operation: Any, last_step: int, between: bool) -> bool:
    """No choice matters: the optimizer, and what comes before the first block. Earlier steps are like the last."""
    return operation.phase in ("optimizer", "start") or (operation.step == last_step and not between)


def _inside(module: str, path: str) -> bool:
    return module == path or module.startswith(path + ".")


def _ends(tracked: Tracked) -> dict[int, int]:
    """Operation -> the last event up to its end."""
    found, at, events = {}, -1, tracked.book.ledger.events
    for op in range(-1, len(tracked.reading.operations)):
        while at + 1 < len(events) and events[at + 1].op <= op:
            at += 1
        found[op] = max(at, 0)
    return found


def _alive_at(tracked: Tracked, event: int, bounds: Sequence[int]) -> list[int]:
    """Bytes alive after an event that were born between neighbouring bounds."""
    found = [0] * (len(bounds) - 1)
    for span in tracked.reading.spans:
        at = bisect_right(bounds, tracked.reading.storages[span.storage].op) - 1
        if span.start <= event < span.end and 0 <= at < len(found):
            found[at] += span.bytes
    return found
