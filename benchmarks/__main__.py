"""``python -m benchmarks [NAME ...]``: what must be fast, as ratios taken in one run. One JSON object a line.

Every module here has ``measure() -> Iterator[dict]``. Keys: name, ratio, better ("higher" or "lower"), ours, theirs,
unit, detail. A ratio compares the same work, median of several rounds, the two sides taking turns.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
from pathlib import Path


def main() -> None:
    known = sorted(
        module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)]) if module.name[0] != "_"
    )
    for name in sys.argv[1:] or known:
        if name not in known:
            sys.exit(f"benchmarks: no {name}; there are {', '.join(known)}")
        module = importlib.import_module(f"benchmarks.{name}")
        if hasattr(module, "measure"):
            for line in module.measure():
                print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
