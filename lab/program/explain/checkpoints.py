"""Errors of files that torch saves and loads."""

from __future__ import annotations

import re
from typing import Any

from lab.program.explain.row import Row
from lab.records.program import Ended

_NAMED = re.compile(r"GLOBAL ([\w.]+) was not an allowed global|Unsupported (?:global|class) ([\w.]+)")
_INSTEAD = {
    "numpy": "Store float(value) or torch.from_numpy(array)",
    "argparse": "Store vars(args), a plain dict",
    "pathlib": "Store str(path)",
    "datetime": "Store its text, such as when.isoformat()",
    "collections": "Store dict(...), or a list",
}


def _refused(ended: Ended, record: Any) -> tuple[str, str] | None:
    """Which name the file asks for, and what to store instead."""
    found = _NAMED.search(ended.message)
    if found is None:
        return None
    name = found[1] or found[2]
    instead = next((text for package, text in _INSTEAD.items() if name.startswith(package)), "")
    if not instead:
        instead = "Save model.state_dict(), build the model from its code, then load_state_dict"
    return (
        f"The file asks for {name}. A pickle may call any function while it is read, so torch.load with weights_only (the default since 2.6) "
        "builds tensors, containers and numbers only.",
        f"{instead}. For a file that you wrote yourself: with torch.serialization.safe_globals([{name.rpartition('.')[2]}]).",
    )


CHECKPOINTS = (
    Row(
        r"Weights only load failed|WeightsUnpickler error",
        "A pickle may call any function while it is read. torch.load with weights_only (the default since 2.6) builds tensors, containers "
        "and numbers only, and this file asks for more.",
        "Store state dicts and plain data.",
        deeper=_refused,
    ),
    Row(
        r"PytorchStreamReader failed|central directory|unexpected EOF|Ran out of input",
        "The file ends too early: it was not written to its end, or not copied whole. The archive's table of contents is its last part.",
        "Write to another name, then os.replace it; read the copy from before.",
    ),
    Row(
        r"Attempting to deserialize object on a CUDA device",
        "Every tensor comes back to the device on which it was saved, and this one has no CUDA device.",
        'Load with map_location="cpu", then move the model.',
    ),
    Row(
        r"param 'initial_lr' is not specified",
        "A schedule that starts at last_epoch > -1 takes its first rate from initial_lr in the groups, which only a schedule or a loaded "
        "state dict puts there.",
        "Build the schedule without last_epoch, then load_state_dict of both the optimizer and the schedule.",
    ),
    Row(
        r"was not saved by this program",
        "Files that torch.save writes here live in memory, as long as the program runs.",
        "Save it first, under the same name.",
    ),
)
