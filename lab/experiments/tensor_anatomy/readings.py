"""Numbers read from a result: for the lessons, and for comparing two runs."""

from __future__ import annotations

from lab.experiments.tensor_anatomy.schema import OF_PROGRAM, Result


def headline(result: Result) -> dict[str, float]:
    """What two runs are compared by."""
    if result.view in OF_PROGRAM:
        return {
            "names": result.names,
            "pieces of memory": result.pieces,
            "copied_bytes": result.copied_bytes,
            "new_bytes": result.new_bytes,
            "operations": len(result.lines) + result.lines_cut,
        }
    found = {
        "promotion": lambda: {"pairs that add": sum(bool(p.result) for p in result.promotion)},
        "precision": lambda: {"relative error": result.chosen_error or 0.0},
        "numpy": lambda: {"ways that share": sum(bool(row.shares) for row in result.bridges)},
        "devices": lambda: {"mixtures not refused by torch": sum(not row.refused_by_torch for row in result.mixed)},
        "data": lambda: {"wrong elements": result.swap.wrong_elements if result.swap else 0},
    }[result.view]()
    return {name: float(value) for name, value in found.items()}


def variable(result: Result, name: str) -> float:
    """A number or a truth value that the program left under this name."""
    value = result.variables[name]
    return float(value)


def new_bytes(result: Result, op: str) -> float:
    """Bytes that the last call of ``op`` took."""
    return float(next(line.new_bytes for line in reversed(result.lines) if line.op == op))


def stride(result: Result, name: str) -> float:
    """Stride of the first dimension of a named tensor."""
    return float(next(strip.stride[0] for strip in result.strips if strip.name == name))


def error_of(result: Result, what: str, dtype: str, how: str, size: int) -> float:
    """The relative error of one row."""
    rows = zip(
        result.errors.what, result.errors.dtype, result.errors.how, result.errors.size, result.errors.error, strict=True
    )
    return next(error for *key, error in rows if tuple(key) == (what, dtype, how, size))
