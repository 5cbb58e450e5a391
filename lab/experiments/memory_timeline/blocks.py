"""Bytes and cost of each block, read from a run that checkpoints none and one that checkpoints each."""

from __future__ import annotations

import statistics
import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
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


Born = dict[tuple[int, int], int]
"""What is alive when the forward is over, by (operation counted from the start of its window, bytes of all of it)."""


class _Windows(NamedTuple):
    """One run: for each block in the order of the forward, and what is most around them."""

    at_entry: int
    """Alive when the first block begins. What checkpointing it has kept by then (a random-number state) is more in that run."""
    kept_forward: list[int]
    born: list[Born]
    """In the window before the first block, in those of all blocks."""
    most_forward: list[int]
    most_backward: list[int]
    elsewhere: int


def chain_of(priced: Sequence[Priced], plain: Tracked, checkpointed: Tracked) -> Chain:
    """The chain of blocks from a run without and a run with all blocks checkpointed. Raises NoPlanError.

    What a block gives to the next one is kept when that one saves it or is checkpointed, so it counts with the next one.
    """
    paths = [block.path for block in priced]
    one, other = _windows(plain, paths), _windows(checkpointed, paths)
    given = [_common(here, there) for here, there in zip(one.born, other.born, strict=True)]
    inside = [sum(born.values()) - common for born, common in zip(one.born, given, strict=True)]
    kept_plain = [before + own for before, own in zip(given[:-1], inside[1:], strict=True)]
    kept_checkpointed = [sum(born.values()) for born in other.born[:-1]]
    early = max(0, other.at_entry - one.at_entry)
    kept_checkpointed[0] += early
    other.kept_forward[0] += early
    kept_plain[-1] += given[-1]
    kept_checkpointed[-1] += sum(other.born[-1].values())
    sides = zip(priced, _sides(one, kept_plain), _sides(other, kept_checkpointed), strict=True)
    return Chain(tuple(Block(p.path, p.cost, a, b) for p, a, b in sides), max(one.elsewhere, other.elsewhere))


def _common(plain: Born, checkpointed: Born) -> int:
    """Bytes that a run without checkpointing keeps of what one with it keeps."""
    return sum(size for key, size in plain.items() if key in checkpointed)


def _sides(run: _Windows, kept: Sequence[int]) -> list[Side]:
    before = accumulate(run.kept_forward[:-1], initial=0)
    before_back = accumulate(kept[:-1], initial=0)
    rows = zip(run.kept_forward, kept, run.most_forward, run.most_backward, before, before_back, strict=True)
    return [Side(now, back, most - f, most_back - b) for now, back, most, most_back, f, b in rows]


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
    born = _alive_at(tracked, ended[forward[-1]], [forward[0], *starts, over])
    stops = [*starts[1:], forward[-1] + 1]  # what follows the last block counts as its own
    return_stops = [backward[-1] + 1, *returns[:-1]]
    returns[-1] = min(returns[-1], backward[0])
    most, most_back = (
        [max(highest[op] for op in range(a, b)) for a, b in zip(begin, end, strict=True)]
        for begin, end in ((starts, stops), (returns, return_stops))
    )
    changed = range(starts[0], backward[-1] + 1)
    last = book.operations[starts[0]].step
    elsewhere = max(size for op, size in highest.items() if _is_elsewhere(book.operation(op), last, op in changed))
    return _Windows(before[0], kept, born, most, most_back, elsewhere)


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


def _alive_at(tracked: Tracked, event: int, bounds: Sequence[int]) -> list[Born]:
    """What is alive after an event and was born between neighbouring bounds."""
    found: list[Born] = [{} for _ in bounds[1:]]
    for span in tracked.reading.spans:
        storage = tracked.reading.storages[span.storage]
        op, at = storage.op, bisect_right(bounds, storage.op) - 1
        if at == 0 and storage.static == "workspaces":
            continue  # see ``at_entry``
        if span.start <= event < span.end and 0 <= at < len(found):
            key = op - bounds[at], span.bytes
            found[at][key] = found[at].get(key, 0) + span.bytes
    return found
