"""The cheapest blocks to checkpoint so that a training step stays under a number of bytes.

NOTE The model, and why the search is exact.
1. Blocks 0 … n-1 run one after the other, and backward in the reverse order. Block i is checkpointed or not, c(i) says which.
   It keeps k(i, c) bytes from its forward until its backward: what it saves, or its input.
2. While block i runs, what blocks 0 … i-1 keep is alive, and on top of it needs(i, c): parameters, gradients of later
   blocks, the inside of block i, in backward of a checkpointed block the whole of what its second forward saves again.
3. Peak = max over i of kept(0 … i-1) + needs(i, c(i)), in forward and in backward, and what no choice changes, such as
   the optimizer step. Leaving out that later blocks are freed by then, it is the textbook's saved bytes of the others +
   inputs of the checkpointed + the largest recomputation.
4. Autocast lets go of its casts when the forward is over, so bytes kept in forward and in backward are two numbers.
5. Cost = the forwards that run twice. From left to right only kept bytes and cost matter for what follows, and more of
   either is never better: of the choices so far those stay that no other beats in all three. Nothing else is dropped.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

MOST_STATES = 200_000
"""The search gives up beyond so many: blocks of many different sizes."""


@dataclass(frozen=True)
class Side:
    """A block with one choice. All in bytes."""

    kept_forward: int
    """Alive from its forward until the forward of all is over."""
    kept_backward: int
    """Alive from then until its backward."""
    needs_forward: int
    """Most alive while it runs, less what the blocks before it keep."""
    needs_backward: int


@dataclass(frozen=True)
class Block:
    path: str
    cost: float
    """Of one more forward."""
    plain: Side
    checkpointed: Side

    def side(self, checkpointed: bool) -> Side:
        return self.checkpointed if checkpointed else self.plain


@dataclass(frozen=True)
class Chain:
    """Blocks in the order of the forward. What comes between the last one and its backward, the loss, is part of its needs."""

    blocks: tuple[Block, ...]
    elsewhere: int
    """Most alive where no choice matters."""

    def peak_bytes(self, chosen: Collection[int]) -> int:
        """Rule 3."""
        forward = backward = 0
        most = self.elsewhere
        for number, block in enumerate(self.blocks):
            side = block.side(number in chosen)
            most = max(most, forward + side.needs_forward, backward + side.needs_backward)
            forward, backward = forward + side.kept_forward, backward + side.kept_backward
        return most

    def cost(self, chosen: Iterable[int]) -> float:
        return sum(self.blocks[number].cost for number in chosen)

    def least_bytes(self) -> int:
        """The lowest peak that any choice has."""
        low, high = 0, self.peak_bytes(())
        while low < high:
            middle = (low + high) // 2
            if self._reachable(middle):
                high = middle
            else:
                low = middle + 1
        return high

    def _reachable(self, budget_bytes: int) -> bool:
        """Ignoring cost; only what is kept matters for what follows, so few states are left."""
        free = Chain(tuple(replace(block, cost=0.0) for block in self.blocks), self.elsewhere)
        return cheapest(free, budget_bytes) is not None


@dataclass(frozen=True)
class _State:
    cost: float
    forward: int
    backward: int
    before: _State | None = None
    checkpointed: bool = False

    def chosen(self) -> frozenset[int]:
        choices, state = [], self
        while state.before is not None:
            choices.append(state.checkpointed)
            state = state.before
        return frozenset(number for number, c in enumerate(reversed(choices)) if c)


def cheapest(chain: Chain, budget_bytes: int) -> frozenset[int] | None:
    """The blocks to checkpoint with the lowest cost and a peak within the budget; None where no choice has one.

    Raises OverflowError beyond ``MOST_STATES``.
    """
    if chain.elsewhere > budget_bytes:
        return None
    states = [_State(0.0, 0, 0)]
    for block in chain.blocks:
        states = _undominated(
            [_next(s, block, c) for s in states for c in (False, True) if _fits(s, block.side(c), budget_bytes)]
        )
        if len(states) > MOST_STATES:
            raise OverflowError(f"more than {MOST_STATES:,} choices that differ in cost and bytes")
    best = min(states, key=lambda s: (s.cost, s.backward), default=None)
    return None if best is None else best.chosen()


def tightest(chain: Chain, budget_bytes: int) -> frozenset[int] | None:
    """Of the cheapest choices within the budget the one with the lowest peak."""
    chosen = cheapest(chain, budget_bytes)
    if chosen is None:
        return None
    enough, low, high = chain.cost(chosen) * (1 + 1e-9), 0, chain.peak_bytes(chosen)
    while low < high:
        middle = (low + high) // 2
        found = cheapest(chain, middle)
        if found is not None and chain.cost(found) <= enough:
            chosen, high = found, chain.peak_bytes(found)
        else:
            low = middle + 1
    return chosen


def _fits(state: _State, side: Side, budget_bytes: int) -> bool:
    return max(state.forward + side.needs_forward, state.backward + side.needs_backward) <= budget_bytes


def _next(state: _State, block: Block, checkpointed: bool) -> _State:
    side, cost = block.side(checkpointed), block.cost if checkpointed else 0.0
    return _State(
        state.cost + cost, state.forward + side.kept_forward, state.backward + side.kept_backward, state, checkpointed
    )


def _undominated(states: Sequence[_State]) -> list[_State]:
    """Those that no other beats or equals in cost and both kinds of kept bytes."""
    found: list[_State] = []
    stairs: list[tuple[int, int]] = []  # (forward, backward) of cheaper ones, forward rising, backward falling
    for state in sorted(states, key=lambda s: (s.cost, s.forward, s.backward)):
        at = bisect_right(stairs, state.forward, key=lambda step: step[0])
        if at and stairs[at - 1][1] <= state.backward:
            continue
        end = at
        while end < len(stairs) and stairs[end][1] >= state.backward:
            end += 1
        start = at - 1 if at and stairs[at - 1][0] == state.forward else at
        stairs[start:end] = [(state.forward, state.backward)]
        found.append(state)
    return found
