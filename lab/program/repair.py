"""A repair is tried before it is offered: the edited program is run, and its gradients are compared.

What "tested" means. The edited program
1. ended without an error, and torch refused fewer things than before (also those whose error the program catches);
2. runs the engine if the program did before, and no pass starts from a leaf;
3. starts its passes from the same values, where the fault is a write in place: such a repair changes no forward;
4. gives finite gradients, and in its first pass, and in those after it up to the first update of a leaf, they are the
   change of where the pass starts, per change of the leaves, in float64 (see ``nudged_run``); so does the first pass
   after an update, for the leaves as they are then.
A program that differentiates nothing is compared on its ``loss``, else its last result with a graph. Ending clean is
enough only where no tensor requires gradients. Whatever cannot be compared is not tested.
"""

from __future__ import annotations

import gc
import math
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch

from lab.contract import Edit, apply_edits
from lab.instruments.describing.names import named_tensors
from lab.instruments.describing.values import tensor_value
from lab.instruments.graph.nudged_run import ComparedPass, Enough, NudgedRun, difference
from lab.program.edits import adds_retain_graph, why_never
from lab.program.lines import FILE, remember
from lab.program.run import Ran, namespace, run_program, torch_defaults
from lab.records.program import Repair

MOST_REPAIRS = 2
_NAMES = 6


class _NotTestedError(Exception):
    """Why a repair is not accepted."""


class Trial:
    """Runs edits of one program. ``asked``: it ran the engine, or tried. ``errors``: messages of what torch refused it.

    ``starts``: values that its passes started from, which a repair must not change.
    """

    def __init__(
        self,
        source: str,
        *,
        seed: int,
        device: str,
        asked: bool,
        errors: Collection[str],
        seconds_left: Callable[[], float],
        starts: Sequence[Any] = (),
    ) -> None:
        self._source, self._seed, self._device = source, seed, device
        self._starts = starts
        self._asked, self._errors, self._left = asked, {e[:200] for e in errors}, seconds_left

    def repairs(self, candidates: Sequence[tuple[Edit, ...]]) -> tuple[Repair, ...]:
        """The first ``MOST_REPAIRS`` of them, tried."""
        found = tuple(dict.fromkeys(c for c in candidates if c))[:MOST_REPAIRS]
        if not found:
            return ()
        gc.collect()  # what the program held is needed for the next
        try:
            return tuple(map(self._tried, found))
        finally:
            remember(self._source)

    def _tried(self, edits: tuple[Edit, ...]) -> Repair:
        edited = apply_edits(self._source, edits)
        if edited is None:
            return Repair(edits, False, "its lines are not those of the program")
        never = why_never(self._source, edited)
        if never:
            return Repair(edits, False, never)
        try:
            gave = self._ends_clean(edited)
            return Repair(edits, True, "", self._compare(edited), *gave)
        except _NotTestedError as why:
            return Repair(edits, False, str(why))
        except Exception as error:  # noqa: BLE001 - a program that the comparison cannot follow is not tested
            return Repair(edits, False, f"it cannot be compared: {type(error).__name__}")

    def _ends_clean(self, edited: str) -> tuple[dict[str, Any], Any]:
        """Run it as it is. What it gave: gradients by name, and where its last pass started."""
        watch = NudgedRun(FILE, 0, double=False)
        ran = self._run(edited, watch)
        if ran.ended:
            raise _NotTestedError(f"it ended with {ran.ended.type}: {ran.ended.message[:200]}")
        if watch.raised and len(watch.raised) >= len(self._errors):
            raise _NotTestedError("torch still refuses what it did before")
        if self._asked and not watch.lines:
            raise _NotTestedError("it no longer runs backward")
        if adds_retain_graph(self._source, edited) and max(Counter(watch.lines).values(), default=0) > 1:
            raise _NotTestedError("retain_graph=True in a loop keeps every graph")
        begun = [tensor_value(p.roots[0]) for p in watch.passes if p.roots]
        if any(not _alike(a, b) for a, b in zip(self._starts, begun, strict=False)):
            raise _NotTestedError("its forward gives other values")
        leaves = [(name, t) for name, t in named_tensors([ran.namespace]) if t.requires_grad and t.is_leaf]
        gradients = {name: leaf.grad for name, leaf in leaves if leaf.grad is not None}
        if not all(
            torch.isfinite(g.to_dense() if g.layout is not torch.strided else g).all() for g in gradients.values()
        ):
            raise _NotTestedError("its gradients are not finite")
        loss = watch.passes[-1].roots[0] if watch.passes and watch.passes[-1].roots else None
        return {name: tensor_value(gradients[name]) for name in list(gradients)[:_NAMES]}, tensor_value(loss)

    def _compare(self, edited: str) -> int:
        """How many passes agree with differences. Raises where one does not."""
        found, has_leaves = self._passes(edited, 0)
        if not found:
            if has_leaves:
                raise _NotTestedError("it has leaves that require gradients, and no result to compare them on")
            return 0
        first = found[0]
        only = first.inputs
        updated = next((k for k, one in enumerate(found) if one.updated), len(found))
        wanted = [k for k in range(updated) if _covers(found[k], only)]
        if 0 not in wanted or not first.comparable:
            raise _NotTestedError("its first backward pass cannot be compared")
        compared = self._agree(edited, wanted, only)
        if updated < len(found) and found[updated].comparable:
            compared += self._agree(edited, [updated], found[updated].inputs, after=updated)
        return compared

    def _agree(self, edited: str, wanted: list[int], only: frozenset[int] | None, *, after: int = 0) -> int:
        """How many of the passes agree. Where a later one does not, what it takes over from those before is a constant for it,
        as it is for the engine where a state is cut between steps.
        """
        off = self._off(edited, wanted, only, after)
        if off[0] is None:
            raise _NotTestedError("its first backward pass cannot be compared")
        late = [k for k, o in zip(wanted, off, strict=True) if k > after and o is not None and not o <= 1]
        off = [o for k, o in zip(wanted, off, strict=True) if k not in late]
        apart = [self._off(edited, [k], only, k)[0] for k in late]
        off += apart
        if None in apart or any(o is not None and not o <= 1 for o in off):
            raise _NotTestedError("its gradients are not those of its own forward")
        return sum(o is not None for o in off)

    def _off(self, edited: str, wanted: list[int], only: frozenset[int] | None, after: int) -> list[float | None]:
        end = wanted[-1] + 1
        middle, plus, minus = (
            self._passes(edited, sign, after=after, only=only, end_after=end)[0] for sign in (0, 1, -1)
        )
        if not len(middle) == len(plus) == len(minus):
            raise _NotTestedError("it takes another path when its leaves move")
        return [difference(middle[k], plus[k], minus[k]) for k in wanted]

    def _passes(self, edited: str, sign: int, **asked: Any) -> tuple[list[ComparedPass], bool]:
        """The passes, and whether there are leaves."""
        watch = NudgedRun(FILE, sign, **asked)
        ran = self._run(edited, watch, double=True)
        if ran.error is not None and not isinstance(ran.error, Enough):
            raise _NotTestedError("it does not run in float64")
        if not watch.passes and not watch.lines:
            _differentiate(ran, watch)
        return watch.passes, watch.has_leaves

    def _run(self, edited: str, watch: NudgedRun, *, double: bool = False) -> Ran:
        left = self._left()
        if left <= 0:
            raise _NotTestedError("there is no time left to try it")
        with torch_defaults(self._seed, self._device):
            if double:
                torch.set_default_dtype(torch.float64)
            with watch:
                return run_program(edited, namespace(), wall_s=left, printed_bytes=1 << 20)


def _alike(one: Any, other: Any) -> bool:
    """Whether two plain values hold the same numbers, but for rounding; True where one is not known."""
    if isinstance(one, dict) and isinstance(other, dict):
        return all(_alike(one[key], other[key]) for key in ("min", "max", "norm") if key in one and key in other)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_alike, one, other))
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return math.isclose(one, other, rel_tol=1e-4, abs_tol=1e-6) or (math.isnan(one) and math.isnan(other))
    return True


def _covers(one: ComparedPass, only: frozenset[int] | None) -> bool:
    """Whether a pass gives a gradient to every leaf that moves."""
    return one.inputs is None or (only is not None and only <= one.inputs)


def _differentiate(ran: Ran, watch: NudgedRun) -> None:
    """Run the engine on a program that did not, on its loss or its last result."""
    values = [*ran.namespace.values(), ran.value]
    results = [v for v in values if type(v) is torch.Tensor and v.grad_fn is not None]
    loss = ran.namespace.get("loss")
    root = loss if isinstance(loss, torch.Tensor) and loss.grad_fn is not None else results[-1] if results else None
    if root is None:
        return
    try:
        with watch:
            torch.autograd.backward(root, torch.ones_like(root), retain_graph=True)
    except Enough:
        return
    except Exception as error:
        raise _NotTestedError("its backward fails") from error
