"""Which event ran inside which, and what each did itself.

NOTE How time is shared out.
1. On one thread of the host, B is a child of A when it lies inside A and inside nothing that lies inside A.
2. Self time is the duration minus that of the children, in whole nanoseconds. So the self times below A, with that of A,
   are exactly the duration of A.
3. Memory belongs to the innermost event around it.
4. A device event belongs to the operation that launched it and is counted there once, not in the wrappers around it.
   Device time is a column of its own: it runs beside host time, so adding the two would count seconds twice.
5. An operation that is the only child of one with the same name is folded into it: the dispatcher ran one operation
   under two keys, and counting both would double the total.
6. A forward operation gives its number to its backward node: so a backward operation knows its forward operation.
"""

from __future__ import annotations

from dataclasses import dataclass

from lab.instruments.profiling.events import DEVICE, HOST, Events


@dataclass
class Tree:
    """Columns beside those of ``events``. Host columns of device and memory events are zero."""

    events: Events
    parent: list[int]
    """Row of the event around it, -1 for none."""
    stands_for: list[int]
    """The row itself, or the one into which it is folded."""
    self_ns: list[int]
    self_bytes: list[int]
    """Allocated minus freed in the event itself."""
    total_bytes: list[int]
    """Allocated minus freed, children included."""
    device_ns: list[int]
    """Of an operation: time of the kernels and copies that it launched itself."""
    forward: list[int]
    """Of a backward operation: row of the forward operation. -1 for none."""


def build_tree(events: Events) -> Tree:
    """One pass over the events, which are in order of thread and start."""
    size = len(events)
    tree = Tree(events, [-1] * size, list(range(size)), [0] * size, [0] * size, [0] * size, [0] * size, [-1] * size)
    start, duration, thread, kind = events.start_ns, events.duration_ns, events.thread, events.kind
    around: list[int] = []
    last_thread = None
    for row in range(size):
        if kind[row] in DEVICE:
            continue
        if thread[row] != last_thread:
            around, last_thread = [], thread[row]
        end = start[row] + duration[row]
        while around and start[around[-1]] + duration[around[-1]] < max(end, start[row] + 1):
            around.pop()
        if around:
            tree.parent[row] = around[-1]
        if kind[row] == "memory":
            _share_memory(tree, row)
            continue
        tree.self_ns[row] = duration[row]
        if around:
            tree.self_ns[around[-1]] -= duration[row]
        around.append(row)
    _fold_repeats(tree)
    _sum_memory(tree)
    _link_device(tree)
    _link_backward(tree)
    return tree


def _share_memory(tree: Tree, row: int) -> None:
    if tree.parent[row] >= 0:
        tree.self_bytes[tree.parent[row]] += tree.events.bytes[row]


def _fold_repeats(tree: Tree) -> None:
    names, kinds = tree.events.name, tree.events.kind
    children = [0] * len(names)
    for row, parent in enumerate(tree.parent):
        if parent >= 0 and kinds[row] in HOST:
            children[parent] += 1
    for row, parent in enumerate(tree.parent):
        if parent < 0:
            continue
        above = tree.parent[row] = tree.stands_for[parent]
        if kinds[row] == "op" == kinds[above] and children[above] == 1 and names[row] == names[above]:
            tree.stands_for[row] = above
            children[above] = children[row]
            tree.self_ns[above] += tree.self_ns[row]
            tree.self_bytes[above] += tree.self_bytes[row]
            tree.self_ns[row] = tree.self_bytes[row] = 0


def _sum_memory(tree: Tree) -> None:
    """Children come after their parents, so one pass from the end carries every sum to the top."""
    for row in range(len(tree.parent) - 1, -1, -1):
        if tree.events.kind[row] in HOST:
            tree.total_bytes[row] += tree.self_bytes[row]
            if tree.parent[row] >= 0:
                tree.total_bytes[tree.parent[row]] += tree.total_bytes[row]


def _link_device(tree: Tree) -> None:
    events = tree.events
    rows = {events.number[row]: tree.stands_for[row] for row in range(len(events)) if events.kind[row] == "op"}
    for row, kind in enumerate(events.kind):
        if kind in DEVICE:
            operation = rows.get(events.launched_by[row], -1)
            tree.parent[row] = operation
            if operation >= 0:
                tree.device_ns[operation] += events.duration_ns[row]


def _link_backward(tree: Tree) -> None:
    events = tree.events
    forward: dict[tuple[int, int], int] = {}
    for row, kind in enumerate(events.kind):
        sequence = events.sequence[row]
        if kind == "op" and sequence >= 0 and not events.forward_thread[row]:
            forward[events.thread[row], sequence] = tree.stands_for[row]  # the innermost with this number comes last
    for row, kind in enumerate(events.kind):
        if kind != "op":
            continue
        if events.forward_thread[row] and events.sequence[row] >= 0:
            tree.forward[row] = forward.get((events.forward_thread[row], events.sequence[row]), -1)
        elif tree.parent[row] >= 0:
            tree.forward[row] = tree.forward[tree.parent[row]]
