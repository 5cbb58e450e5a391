"""Errors of the backward engine, from the pass that they ended."""

from __future__ import annotations

import math
import re

from lab.experiments.autograd_graph.findings import custom, freed, in_place, no_path
from lab.experiments.autograd_graph.findings.record import Explained, Record, module_words, on_line, site
from lab.records.graph import Pass, Step
from lab.records.operations import Made
from lab.records.program import Ended

_ONE_NUMBER = "backward() without an argument starts from the gradient 1, which is defined for one real number only."


def explain(record: Record, ended: Ended) -> Explained | None:
    message = ended.message
    for run, steps in failed(record, ended):
        if "modified by an inplace operation" in message:
            return in_place.explain_overwritten(record, run, steps, run.line)
        if "second time" in message:
            return freed.explain_freed(record, run, steps)
        if "incorrect number of gradients" in message:
            return custom.explain_count(record, message, run.line)
        if "once_differentiable" in message:
            return custom.explain_once(record, run.line)
        if "not have been used in the graph" in message:
            return no_path.explain_unused_input(record, run, message)
        if "scalar outputs" in message or "real scalar" in message:
            return _not_scalar(record, run)
        if "returned nan values in its" in message:
            return _stopped_at_nan(record, run, steps)
        if "Mismatch in shape: grad_output" in message:
            return _gradient_shape(record, run, message)
        if "differentiated Tensors does not require grad" in message:
            return _asked_without_grad(record, run)
    if "second time" in message:
        return freed.explain_saved_gone(record, ended.line)
    refused = record.refused(ended)
    if refused and "does not require grad and does not have a grad_fn" in message:
        return no_path.explain_refused_backward(record, refused)
    return None


def failed(record: Record, ended: Ended) -> list[tuple[Pass, tuple[Step, ...]]]:
    """Passes that ended with this error, the latest first. An error inside a hook or a backward has a line of its own."""
    pairs = zip(record.result.passes, record.result.backward, strict=True)
    return [
        (run, steps)
        for run, steps in reversed(list(pairs))
        if run.error and run.error[:100] == ended.message[:100] and (run.line or 0) in (ended.line, 0, run.line)
    ]


def _not_scalar(record: Record, run: Pass) -> Explained | None:
    roots = [record.made[s] for s in run.roots if s in record.made]
    made = next((m for m in roots if math.prod(m.shape) != 1 or m.dtype.startswith("complex")), None)
    node = record.nodes.get(run.root) if run.root is not None else None
    shape, dtype = (made.shape, made.dtype) if made else (node.shape, node.dtype) if node else (None, None)
    if shape is None:
        return None
    name = (made.name if made else "") or run.call.rpartition(".")[0] or "it"
    name = "the result" if name.startswith("torch") else name
    at = made.line if made else node.line if node else None
    complex_root = bool(dtype and dtype.startswith("complex"))
    what = f"dtype {dtype}" if complex_root else f"shape {list(shape)}"
    sites = site(run.line, "fails here", name)
    sites += site(at, "made here", name, after=str(list(shape))) if at != run.line else ()
    old = record.text(run.line)
    edits = (
        record.changed(run.line, ".backward(", ".sum().backward(")
        if not complex_root and old.count(".backward(") == 1 and not run.call.startswith("torch.")
        else ()
    )
    repair = (
        "Take a real number of it first: .abs(), .real or .square().real, and sum()."
        if complex_root
        else "Reduce to a scalar first (.sum() or .mean()), or pass gradient=..., a tensor of the same shape."
    )
    evidence = {"shape": str(list(shape)), "dtype": str(dtype)}
    return Explained(f"{name}{on_line(at)} has {what}. {_ONE_NUMBER}", repair, sites, evidence, edits)


def _gradient_shape(record: Record, run: Pass, message: str) -> Explained | None:
    shapes = re.search(
        r"grad_output\[(\d+)\] has a shape of torch\.Size\((\[.*?\])\) and output.*shape of torch\.Size\((\[.*?\])\)",
        message,
    )
    if shapes is None or int(shapes[1]) >= len(run.roots):
        return None
    made = record.made.get(run.roots[int(shapes[1])])
    name = (made.name if made else "") or "the result"
    at = made.line if made else None
    text = (
        f"{name}{on_line(at)} has shape {shapes[3]}, and the gradient that {run.call}{on_line(run.line)} is given has shape "
        f"{shapes[2]}. There is one number for each element of {name}, so both are the same."
    )
    sites = site(run.line, "fails here", run.call, shapes[2], shapes[3]) + site(at, "made here", name, after=shapes[3])
    repair = (
        f"Pass a gradient of shape {shapes[3]}, such as torch.ones_like({made.name if made and made.name else 'y'})."
    )
    return Explained(text, repair, sites, {"given": shapes[2], "needed": shapes[3]})


def _stopped_at_nan(record: Record, run: Pass, steps: tuple[Step, ...]) -> Explained | None:
    """Anomaly detection names the node; its line is that of the forward."""
    node = record.nodes.get(steps[-1].node) if steps else None
    if node is None:
        return None
    made = f"{node.label}{on_line(node.line)}{module_words(node.module)}"
    text = f"The backward of {made} gave NaN, and anomaly detection ended {run.call}{on_line(run.line)} there, at the first node that did."
    sites = site(node.line, "became NaN here", node.label) + site(run.line, "fails here", run.call)
    repair = f"Look at what {node.label} was given{on_line(node.line)}: a derivative that is infinite there, times a gradient of 0, is NaN."
    return Explained(text, repair, sites, {"node": node.name})


def _asked_without_grad(record: Record, run: Pass) -> Explained | None:
    asked: list[Made] = [record.made[s] for s in run.input_states if s in record.made]
    off = next((m for m in asked if not m.requires_grad), None)
    if off is None:
        return None
    name = off.name or "a tensor"
    text = (
        f"{name}{on_line(off.line)} does not require gradients, so {run.call}{on_line(run.line)} has nothing to differentiate with "
        f"respect to it."
    )
    sites = site(off.line, "born without requires_grad", name) + site(run.line, "fails here", run.call)
    repair = f"Create {name} with requires_grad=True before the result is computed from it."
    return Explained(text, repair, sites, {"asked for": name})
