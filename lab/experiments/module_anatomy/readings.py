"""Numbers read from a result: those that settle the lessons, and those of a comparison."""

from __future__ import annotations

from lab.experiments.module_anatomy.schema import Result
from lab.records.anatomy import Keys, TensorRow


def tensor(result: Result, name: str) -> TensorRow:
    return next(t for t in result.tensors if t.name == name)


def parameters(result: Result) -> list[TensorRow]:
    """Each object once."""
    return list({t.identity: t for t in result.tensors if t.kind == "parameter"}.values())


def keys(result: Result) -> Keys:
    assert result.keys
    return result.keys


def hidden(result: Result) -> int:
    """Numbers in what is not registered."""
    return sum(u.elements for u in result.unregistered)


def own_hooks_fired(result: Result) -> int:
    """Calls of the program's hooks in the measured pass."""
    return sum(hook.fired for hook in result.hooks)


def headline(result: Result) -> dict[str, float]:
    """What two runs are compared by."""
    found: dict[str, float] = {"parameters": result.parameter_count, "numbers not registered": hidden(result)}
    if result.tensors:
        rows = {t.identity: t for t in result.tensors}.values()
        found |= {"tensors": len(rows), "that move": sum(bool(t.moves) for t in rows)}
        found |= {
            "that are saved": sum(t.saved for t in rows),
            "that the optimizer holds": sum(bool(t.owned) for t in rows),
        }
    if result.events:
        found |= {"events": len(result.events), "own hooks fired": own_hooks_fired(result)}
    if result.keys:
        found |= {"keys loaded": result.keys.loaded, "keys changed": result.keys.changed}
    return found
