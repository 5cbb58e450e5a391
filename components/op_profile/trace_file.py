"""The timeline as a trace file for Perfetto or chrome://tracing."""

from __future__ import annotations

import gzip
import json
from typing import Any

from lab.records.profiling import Timeline

_CATEGORIES = {
    "op": "cpu_op", "range": "user_annotation", "runtime": "cuda_runtime", "kernel": "kernel", "copy": "gpu_memcpy",
}  # fmt: skip


def trace_file(timeline: Timeline) -> bytes:
    """Chrome's trace format, gzipped; times in µs. Steps are called ``ProfilerStep#k``, as trace tools expect."""
    names, lanes = timeline.names, timeline.lanes
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "thread_name", "pid": 0, "tid": lane, "args": {"name": name}}
        for lane, name in enumerate(lanes)
    ]
    steps = 0
    for at, name in enumerate(timeline.name):
        kind, text = timeline.kind[at], names[name]
        if kind == "range" and text == "step":
            text, steps = f"ProfilerStep#{steps}", steps + 1
        shapes = timeline.shapes[at]
        events.append({
            "ph": "X", "cat": _CATEGORIES[kind], "name": text, "pid": 0, "tid": timeline.lane[at],
            "ts": timeline.start_s[at] * 1e6, "dur": timeline.duration_s[at] * 1e6,
            "args": {} if shapes < 0 else {"Input Dims": json.loads(names[shapes])},
        })  # fmt: skip
    text = json.dumps({"schemaVersion": 1, "displayTimeUnit": "ms", "traceEvents": events}, separators=(",", ":"))
    return gzip.compress(text.encode(), compresslevel=6, mtime=0)
