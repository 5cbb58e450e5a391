"""From what the recorder saw to plain records: the way from inputs to results, and everything that happened on it."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from typing import Any

from lab.instruments.describing.assigned import AssignedNames
from lab.instruments.describing.values import dtype_name, is_finite, known_shape
from lab.instruments.graph.book import Seen
from lab.instruments.graph.events import SeenHook, SeenWrite
from lab.instruments.graph.nonfinite import SeenNonFinite
from lab.instruments.graph.program_trace import ProgramTrace
from lab.instruments.graph.recorder import WRITTEN
from lab.instruments.graph.tensor_log import State
from lab.instruments.graph.to_records import Numbering
from lab.records.operations import Cleared, Custom, Hook, Made, Mode, NonFinite, OptimizerStep, Refused, Written

MOST_MADE, MOST_EVENTS = 400, 400


class Trail:
    """Names of states, and the states that led to the roots."""

    def __init__(self, trace: ProgramTrace, assigned: AssignedNames, numbering: Numbering) -> None:
        self._recorder, self._assigned, self._node_id = trace.recorder, assigned, numbering.id
        self._names, self._trace = trace.names(), trace
        self._by_state: dict[int, Seen] = {}
        for seen in (*numbering.main, *trace.seen_nodes()):
            if seen.state is not None:
                self._by_state.setdefault(seen.state.number, seen)
        self._wanted: list[State] = []
        self._reaching: set[int] = set()

    def name(self, state: State) -> str:
        """The program's name for the tensor while it had this content, or empty."""
        tensor = state.reference()
        live = self._names.of(tensor) if tensor is not None else ""
        if live:
            return live
        if state.number in self._trace.spoken:
            return self._trace.spoken[state.number][0]
        seen = self._trace.book.known_leaf(tensor) if tensor is not None and state.is_leaf else None
        if seen is not None and seen.label not in ("", "leaf"):
            return seen.label
        return self.assigned(state)

    def assigned(self, state: State) -> str:
        maker = state.maker
        if maker is None or state not in maker.results:
            return ""
        return self._assigned.name(maker.line, maker.name, maker.results.index(state), len(maker.results))

    def want(self, states: Iterable[State]) -> None:
        """Keep these and what they were made from."""
        self._wanted += states

    def reach(self, roots: Iterable[State]) -> None:
        """These are losses: what they were made from reaches a loss."""
        self._reaching |= {state.number for state in states_behind(roots, 50_000, through_leaves=False)}

    def reaches(self, state: State) -> bool:
        return state.number in self._reaching

    def made(self) -> tuple[Made, ...]:
        """The states that were wanted, and those behind them, nearest first where there are too many."""
        kept = {state.number: state for state in states_behind(self._wanted, MOST_MADE)}
        return tuple(self._made(kept[number]) for number in sorted(kept))

    def _made(self, state: State) -> Made:
        maker = state.maker
        node = self._by_state.get(state.number)
        return Made(
            state=state.number,
            name=self.name(state),
            operation="" if maker is None else WRITTEN.get(maker.name, maker.name),
            line=maker.line if maker else None,
            module=maker.module if maker else None,
            shape=known_shape(state.shape) or (),
            dtype=dtype_name(state.dtype),
            requires_grad=state.requires_grad,
            is_leaf=state.is_leaf,
            grad_enabled=maker.grad_enabled if maker else True,
            inference=maker.inference if maker else False,
            inputs=tuple(s.number for s in inputs_of(state)),
            value=state.value,
            nan=state.nan,
            infinite=state.infinite,
            node=self._node_id(node) if node is not None else None,
            number=maker.plain_result if maker else None,
            moment=maker.number if maker else None,
            zero=state.zero,
            repeats=bool(maker and maker.repeats),
        )

    # Events.

    def written(self) -> tuple[Written, ...]:
        return tuple(self._written(write) for write in self._recorder.events.writes[-MOST_EVENTS:])

    def _written(self, write: SeenWrite) -> Written:
        return Written(
            moment=write.moment,
            line=write.line,
            operation=write.operation,
            name=(write.leaf.label if write.leaf else "") or self.name(write.use) or self.name(write.state),
            module=write.module,
            caller=write.caller,
            storage=write.storage,
            through_data=write.through_data,
            version=write.version,
            grad_enabled=write.grad_enabled,
            before=write.use.value,
            after=write.state.value,
            state=write.state.number,
        )

    def refused(self) -> tuple[Refused, ...]:
        return tuple(
            Refused(r.operation, r.line, r.module, r.kind, r.message, r.operands, r.grad_enabled, r.moment)
            for r in self._recorder.events.refusals
        )

    def nonfinite(self) -> tuple[NonFinite, ...]:
        return tuple(self._nonfinite(seen) for seen in self._recorder.nonfinite.kept)

    def _nonfinite(self, seen: SeenNonFinite) -> NonFinite:
        call = seen.call
        return NonFinite(
            moment=call.number,
            operation=call.name,
            line=call.line,
            module=call.module,
            name=self.name(seen.state),
            kind=seen.kind,
            index=seen.index,
            count=seen.count,
            elements=seen.elements,
            operands=seen.operands,
            at_index=seen.at_index,
            result=seen.result,
            given_infinity=any(use.infinite for use in call.uses),
            reaches=self.reaches(seen.state),
            state=seen.state.number,
            numbers=tuple(a for a in (*call.args, *call.kwargs.values()) if type(a) in (int, float)),
            lasts=self._lasts(seen.state),
            dtype=dtype_name(seen.state.dtype),
        )

    def _lasts(self, state: State) -> bool:
        """Whether a named tensor of the program still holds it, or what was made of it, at the end."""
        known = {s.number for s in self._recorder.tensors.living()}
        bad = {state.number}
        for call in self._recorder.tensors.operations[(state.maker.number if state.maker else 0) + 1 :]:
            if any(use.number in bad for use in call.uses):
                if call.plain_result is not None and not is_finite(call.plain_result):
                    return True
                bad |= {s.number for s in (*call.results, *call.written) if s.nan or s.infinite}
        return any(number in known for number in bad)

    def hooks(self) -> tuple[Hook, ...]:
        return tuple(self._hook(seen) for seen in self._recorder.events.hooks[:MOST_EVENTS])

    def _hook(self, seen: SeenHook) -> Hook:
        node = self._node_id(seen.node) if seen.node is not None else None
        name = self.name(seen.state) or (seen.node.label if seen.node else "")
        return Hook(seen.moment, seen.line, seen.kind, name, node, tuple(seen.calls), seen.changed)

    def steps(self) -> tuple[OptimizerStep, ...]:
        return tuple(
            OptimizerStep(
                s.moment,
                s.line,
                s.optimizer,
                tuple(leaf.label for leaf in s.parameters),
                tuple(leaf.label for leaf in s.without_gradient),
            )
            for s in self._recorder.events.steps[-50:]
        )

    def cleared(self) -> tuple[Cleared, ...]:
        return tuple(
            Cleared(c.moment, c.line, c.leaf.label, c.caller) for c in self._recorder.events.clears[-MOST_EVENTS:]
        )

    def modes(self) -> tuple[Mode, ...]:
        return tuple(Mode(m.moment, m.line, m.enabled, m.inference) for m in self._recorder.events.modes[-MOST_EVENTS:])


def inputs_of(state: State) -> Iterator[State]:
    """What ``state`` was made from: the operands of its maker, and what it is a view of."""
    if state.maker is not None:
        yield from state.maker.uses
    elif state.base is not None:
        yield state.base


def states_behind(states: Iterable[State], most: int, *, through_leaves: bool = True) -> Iterator[State]:
    """``states`` and everything behind them, breadth first; a leaf was written by optimizers, which is no way of gradients."""
    known, todo = set(), list(states)
    for state in todo:  # grows while it is walked
        if state.number not in known and len(known) < most:
            known.add(state.number)
            yield state
            if through_leaves or not (state.is_leaf and state.requires_grad):
                todo.extend(inputs_of(state))


def custom_records(classes: dict[str, type], file: str) -> tuple[Custom, ...]:
    """What is known of each ``torch.autograd.Function`` that was applied."""
    return tuple(_custom(node, cls, file) for node, cls in classes.items())


def _custom(node: str, cls: Any, file: str) -> Custom:
    forward, backward = inspect.unwrap(cls.forward), cls.backward
    inner = _inner(backward)
    code = getattr(forward, "__code__", None)
    ours = code is not None and code.co_filename == file
    arguments = code.co_varnames[: code.co_argcount] if code else ()
    return Custom(
        name=cls.__name__,
        node=node,
        by_program=ours,
        forward_line=code.co_firstlineno if code and ours else None,
        backward_line=inner.__code__.co_firstlineno if inner is not None and ours else None,
        forward_arguments=tuple(a for a in arguments if a != "ctx"),
        once_differentiable=inner is not backward and inner is not None,
    )


def _inner(backward: Any) -> Any:
    """The program's own function under ``once_differentiable``, which does not say what it wraps."""
    code = getattr(backward, "__code__", None)
    if code is None or "once_differentiable" not in code.co_qualname:
        return backward if code is not None else None
    cells = (cell.cell_contents for cell in backward.__closure__ or ())
    return next((held for held in cells if hasattr(held, "__code__")), None)
