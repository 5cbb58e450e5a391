"""Where the boxes go: sizes in, positions out.

Graphviz gets numbered boxes, their sizes and the edges; never a text. One pixel is one point. ``y`` grows downwards.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

TIME_LIMIT_S = 3.0
NODE_GAP, RANK_GAP = 28, 38
"""Pixels between neighbours in a rank, and between ranks: room for the text on an edge."""

Point = tuple[float, float]


@dataclass(frozen=True)
class Frame:
    """A group that is drawn with a border: indices of its boxes, and the frames inside it."""

    boxes: tuple[int, ...]
    frames: tuple[Frame, ...] = ()


@dataclass(frozen=True)
class Layout:
    width: float
    height: float
    centres: tuple[Point, ...]
    curves: tuple[tuple[Point, ...], ...]
    """Control points of cubic Bézier pieces for each edge: the start, then three points a piece, from source to target."""
    frames: tuple[tuple[float, float, float, float], ...]
    """x, y, width, height of each frame, outermost first (pre-order)."""
    exact: bool
    """False when Graphviz took longer than the limit and boxes were put in plain layers."""


@lru_cache(maxsize=64)
def place(
    sizes: tuple[tuple[int, int], ...],
    edges: tuple[tuple[int, int], ...],
    frames: tuple[Frame, ...] = (),
    across: bool = False,
) -> Layout:
    """Positions for boxes of ``sizes`` (width, height) joined by ``edges`` (source, target), data flowing down, or
    to the right with ``across``.

    Raises RuntimeError when Graphviz is missing or fails.
    """
    if not sizes:
        return Layout(0, 0, (), (), (), True)
    try:
        done = subprocess.run(
            [graphviz(), "-Kdot", "-Tjson0"],
            input=_dot(sizes, edges, frames, "LR" if across else "TB"),
            capture_output=True,
            text=True,
            timeout=TIME_LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        return layers(sizes, edges)
    if done.returncode:
        raise RuntimeError(f"Graphviz ended with status {done.returncode}: {done.stderr.strip()[:200]}")
    return _read(json.loads(done.stdout), len(sizes), len(edges))


@lru_cache(maxsize=1)
def graphviz() -> str:
    """The executable: beside this Python, else on PATH, else Graphviz's own ``dot``."""
    beside = str(Path(sys.executable).parent)
    for name, path in (("graphviz-pure", beside), ("graphviz-pure", None), ("dot", None)):
        if found := shutil.which(name, path=path):
            return found
    raise RuntimeError("No Graphviz executable found. Install it: pip install graphviz-pure")


def _dot(
    sizes: tuple[tuple[int, int], ...], edges: tuple[tuple[int, int], ...], frames: tuple[Frame, ...], direction: str
) -> str:
    lines = [
        f"digraph{{rankdir={direction} nodesep={NODE_GAP / 72:.3f} ranksep={RANK_GAP / 72:.3f}",
        'node[shape=box fixedsize=true label=""] edge[arrowhead=none]',
    ]
    lines += [f"{i}[width={w / 72:.4f} height={h / 72:.4f}]" for i, (w, h) in enumerate(sizes)]
    lines += [f"{a}->{b}[id={i}]" for i, (a, b) in enumerate(edges)]
    counter = iter(range(10**6))
    lines += [_cluster(frame, counter) for frame in frames]
    return "\n".join([*lines, "}"])


def _cluster(frame: Frame, counter) -> str:
    number = next(counter)
    inner = " ".join(_cluster(f, counter) for f in frame.frames)
    return f"subgraph cluster_{number}{{margin=22 {inner} {' '.join(f'{i};' for i in frame.boxes)}}}"


def _read(graph: dict, boxes: int, edges: int) -> Layout:
    _, _, width, height = map(float, graph["bb"].split(","))

    def point(text: str) -> Point:
        x, y = text.split(",")
        return round(float(x), 1), round(height - float(y), 1)

    centres: list[Point] = [(0.0, 0.0)] * boxes
    frames: dict[int, tuple[float, float, float, float]] = {}
    for item in graph.get("objects", ()):
        if "pos" in item:
            centres[int(item["name"])] = point(item["pos"])
        elif "bb" in item and item["name"].startswith("cluster_"):
            left, bottom, right, top = map(float, item["bb"].split(","))
            frames[int(item["name"][8:])] = (left, height - top, right - left, top - bottom)
    curves: list[tuple[Point, ...]] = [()] * edges
    for edge in graph.get("edges", ()):
        curves[int(edge["id"])] = tuple(point(p) for p in edge.get("pos", "").split())
    return Layout(width, height, tuple(centres), tuple(curves), tuple(frames[i] for i in sorted(frames)), True)


def layers(sizes: tuple[tuple[int, int], ...], edges: tuple[tuple[int, int], ...]) -> Layout:
    """Layout without Graphviz: each box one layer below its lowest source, straight edges, no frames."""
    depth = _depths(len(sizes), edges)
    rows: list[list[int]] = [[] for _ in range(max(depth, default=0) + 1)]
    for i, d in enumerate(depth):
        rows[d].append(i)
    widths = [sum(sizes[i][0] + NODE_GAP for i in row) - NODE_GAP for row in rows]
    centres, y = [(0.0, 0.0)] * len(sizes), 0.0
    for row, width in zip(rows, widths, strict=True):
        x, tallest = (max(widths) - width) / 2, max(sizes[i][1] for i in row)
        for i in row:
            centres[i] = (x + sizes[i][0] / 2, y + tallest / 2)
            x += sizes[i][0] + NODE_GAP
        y += tallest + RANK_GAP
    curves = []
    for a, b in edges:
        (ax, ay), (bx, by) = centres[a], centres[b]
        start, end = ay + sizes[a][1] / 2, by - sizes[b][1] / 2
        middle = (start + end) / 2
        curves.append(((ax, start), (ax, middle), (bx, middle), (bx, end)))
    return Layout(max(widths), y - RANK_GAP, tuple(centres), tuple(curves), (), False)


def _depths(count: int, edges: tuple[tuple[int, int], ...]) -> list[int]:
    below: list[list[int]] = [[] for _ in range(count)]
    waiting, depth = [0] * count, [0] * count
    for a, b in edges:
        below[a].append(b)
        waiting[b] += 1
    ready = [i for i in range(count) if not waiting[i]]
    for a in ready:
        for b in below[a]:
            depth[b] = max(depth[b], depth[a] + 1)
            waiting[b] -= 1
            if not waiting[b]:
                ready.append(b)
    return depth
