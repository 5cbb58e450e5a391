"""What comparing stages costs, against running both paths and comparing their answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from benchmarks.turns import in_turns, line
from lab.contract import silent
from lab.experiments.serving_skew import Params, run
from lab.workloads.serving_paths import rows, served_path, trained_path


def measure() -> Iterator[dict[str, Any]]:
    """One thread, as in a worker."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    golden = rows(1024, 1)

    def plain() -> None:
        served = served_path("train mode")
        for path in (trained_path(), served, served):
            path.run(golden)

    try:
        ours, theirs = in_turns(lambda: run(Params(golden_rows=1024), silent), plain, rounds=9)
        yield line("eleven stages of 1,024 rows compared", ours, theirs, "against running the paths", better="lower")
    finally:
        torch.set_num_threads(threads)
