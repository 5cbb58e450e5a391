"""Python's own time in a step: what runs between the operators, and on which lines.

NOTE How it is told.
1. In the forward pass and the optimizer, what lies in a range and in no operator is Python. It is exact: the self time of
   the ranges. In the backward pass it is PyTorch's engine.
2. Short gaps are the way from one call to the next, and belong to the calls. Long ones are work of Python.
3. A function of autograd that is written in Python is an operator to the profiler. Its name has no namespace and no
   number, which those of PyTorch have; its self time is Python.
4. Lines come from steps of their own: a second thread notes the frames of the first, some thousand times a second. A note
   made inside an operator is dropped. These steps take longer, and their times are used for nothing else.
"""

from __future__ import annotations

import sys
import threading
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from lab.instruments.profiling.tree import Tree
from lab.records.profiling import PythonLine

_EVERY_S = 0.0005
_SWITCH_S = 0.0002
"""How long Python runs on before the other thread may look."""
MOST_LINES = 8


class FrameSampler:
    """Notes where a thread is. ``files``: whose lines are told; the innermost counts."""

    def __init__(self, files: Sequence[str]) -> None:
        self._files = frozenset(files)
        self._notes: list[tuple[int, str, int | None]] = []
        """When (ns since 1970, as the profiler's events), function, line."""

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the calling thread inside."""
        watched, over, interval = threading.get_ident(), threading.Event(), sys.getswitchinterval()
        thread = threading.Thread(target=self._watch, args=(watched, over), daemon=True)
        sys.setswitchinterval(_SWITCH_S)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            sys.setswitchinterval(interval)

    def _watch(self, watched: int, over: threading.Event) -> None:
        while not over.wait(_EVERY_S):
            frame = sys._current_frames().get(watched)
            if frame is not None:
                self._notes.append((time.time_ns(), *self._where(frame)))

    def _where(self, innermost: FrameType) -> tuple[str, int | None]:
        frame: FrameType | None = innermost
        while frame is not None:
            if frame.f_code.co_filename in self._files:
                return frame.f_code.co_name, frame.f_lineno
            frame = frame.f_back
        return innermost.f_code.co_qualname, None

    def lines(
        self, tree: Tree, parts: Sequence[str], without: Sequence[int] = ()
    ) -> tuple[int, tuple[PythonLine, ...]]:
        """(notes outside operators and inside one of ``parts``, where they were: the most frequent first)."""
        functions = [row for row in range(len(tree.parent)) if is_python(tree, row)]
        operators, inside = (
            _Spans(tree, [*_operators(tree), *without]),
            _Spans(tree, [*_ranges(tree, parts), *functions]),
        )
        found = Counter(
            (function, line)
            for at_ns, function, line in self._notes
            if inside.hold(at_ns) and not operators.hold(at_ns)
        )
        seen = found.total()
        return seen, tuple(
            PythonLine(function, line, count / seen) for (function, line), count in found.most_common(MOST_LINES)
        )


def is_python(tree: Tree, row: int) -> bool:
    """A function of autograd that is written in Python."""
    name = tree.events.name[row]
    return tree.events.kind[row] == "op" and name.isidentifier() and name[0].isupper() and not name[-1].isdigit()


def _operators(tree: Tree) -> list[int]:
    """Rows of operators in which no Python runs."""
    around: set[int] = set()
    rows = []
    for row in range(len(tree.parent) - 1, -1, -1):
        if row in around or is_python(tree, row):
            around.add(tree.parent[row])
        elif tree.events.kind[row] == "op":
            rows.append(row)
    return rows


def _ranges(tree: Tree, names: Sequence[str]) -> list[int]:
    return [row for row, name in enumerate(tree.events.name) if name in names and tree.events.kind[row] == "range"]


class _Spans:
    """The union of the intervals of rows."""

    def __init__(self, tree: Tree, rows: Sequence[int]) -> None:
        events = tree.events
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in sorted(
            (events.start_ns[row], events.start_ns[row] + events.duration_ns[row]) for row in rows
        ):
            if self._ends and start < self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], end)
            else:
                self._starts.append(start)
                self._ends.append(end)

    def hold(self, at_ns: int) -> bool:
        at = bisect_right(self._starts, at_ns) - 1
        return at >= 0 and at_ns < self._ends[at]


def python_ns(tree: Tree, parts: Sequence[str], long_gap_ns: float, without: Sequence[int] = ()) -> int:
    """Work of Python in the ``parts`` of the step: long gaps between operators, and functions of autograd in Python.

    ``without``: rows that do not count, with all inside them.
    """
    events = tree.events
    counted, left_out = [False] * len(events), set(without)
    end_of: dict[int, int] = {}
    found = 0
    for row, parent in enumerate(tree.parent):
        if events.kind[row] not in ("op", "range", "runtime"):
            continue
        if parent in left_out:
            left_out.add(row)
        if is_python(tree, row) and row not in left_out:
            found += tree.self_ns[row]
        counted[row] = (parent >= 0 and counted[parent]) or events.name[row] in parts
        if not counted[row]:
            continue
        if events.kind[row] == "range" and row not in left_out:
            end_of[row] = events.start_ns[row]
        if parent in end_of:
            found += _long(events.start_ns[row] - end_of[parent], long_gap_ns)
            end_of[parent] = events.start_ns[row] + events.duration_ns[row]
    for row, end in end_of.items():
        found += _long(events.start_ns[row] + events.duration_ns[row] - end, long_gap_ns)
    return found


def _long(gap_ns: int, limit_ns: float) -> int:
    return gap_ns if gap_ns > limit_ns else 0
