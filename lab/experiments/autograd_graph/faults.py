"""Why a program ended early: read from the record of this run where that shows it, else from the table of all pages."""

from __future__ import annotations

import logging
import re

from lab.contract import Fault
from lab.experiments.autograd_graph.findings import custom, freed, in_place, leaves, no_path, refused_writes
from lab.experiments.autograd_graph.findings.record import Explained, Record, on_line, site
from lab.experiments.autograd_graph.schema import Result
from lab.program.explain import explain_fault
from lab.records.operations import Operand, Refused
from lab.records.program import Ended


def fault_of(ended: Ended | None, result: Result) -> Fault | None:
    """The fault of a program that ended early, with its cause where the record shows it."""
    if ended is None:
        return None
    plain = explain_fault(ended)
    why = explain(Record(result), ended.type, ended.message, ended.line)
    if why is None:
        return Fault(
            ended.type, ended.message, ended.line, plain.explanation, plain.repair, site(ended.line, "fails here")
        )
    return Fault(ended.type, ended.message, ended.line, why.text, why.repair or plain.repair, why.sites)


def explain(record: Record, kind: str, message: str, line: int | None) -> Explained | None:
    """The cause as the record shows it; None where it shows none."""
    try:
        return explain_pass(record, message, line) or explain_refused(record, kind, message, line)
    except Exception:
        logging.getLogger(__name__).exception("%s was not explained", kind)
        return None


def explain_pass(record: Record, message: str, line: int | None) -> Explained | None:
    """An error that a pass of the engine ended with."""
    for run, steps in reversed(list(zip(record.result.passes, record.result.backward, strict=True))):
        if not run.error or run.error[:100] != message[:100] or (line and run.line and run.line != line):
            continue
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
            return _not_scalar(record, run.root, run.roots, run.line, run.call)
    return None


def _not_scalar(
    record: Record, root: int | None, states: tuple[int, ...], line: int | None, call: str
) -> Explained | None:
    made = next((record.made[s] for s in states if s in record.made), None)
    node = record.nodes.get(root) if root is not None else None
    shape, dtype = (made.shape, made.dtype) if made else (node.shape, node.dtype) if node else (None, None)
    name = (made.name if made else "") or call.rpartition(".")[0] or "it"
    at = made.line if made else node.line if node else None
    if shape is None:
        return None
    what = f"shape {list(shape)}" if shape else f"dtype {dtype}"
    text = f"{name}{on_line(at)} has {what}. backward() without an argument starts from the gradient 1, which is defined for one real number only."
    sites = site(line, "fails here", name) + (site(at, "made here", name, after=str(list(shape))) if at != line else ())
    old = record.text(line)
    complex_root = bool(dtype and dtype.startswith("complex"))
    edits = (
        record.replaced(line, old.strip().replace(".backward(", ".sum().backward(", 1))
        if old.count(".backward(") == 1 and not complex_root and not call.startswith("torch.")
        else ()
    )
    repair = (
        "Take a real number of it first: .abs(), .real or .square().real, and sum()."
        if complex_root
        else "Reduce to a scalar first (.sum() or .mean()), or pass gradient=..., a tensor of the same shape."
    )
    return Explained(text, repair, sites, {"shape": str(list(shape)), "dtype": str(dtype)}, edits)


def explain_refused(record: Record, kind: str, message: str, line: int | None) -> Explained | None:
    """An error that an operation was refused with, or that Python raised for something read from a tensor."""
    refused = next(
        (
            r
            for r in reversed(record.result.refused)
            if r.message[:100] == message[:100] and (not line or r.line == line)
        ),
        None,
    )
    if "does not require grad and does not have a grad_fn" in message and refused:
        return no_path.explain_refused_backward(record, refused)
    if "second time" in message:
        return freed.explain_saved_gone(record, line)
    if kind == "RecursionError" and "make_dot" in record.text(line):
        return _recursive_drawing(record, line)
    if kind in ("TypeError", "AttributeError"):
        return leaves.explain_none_gradient(record, message, line)
    if "can't optimize a non-leaf Tensor" in message:
        return _non_leaf_optimized(record, line)
    if "does not support sparse gradients" in message:
        return _sparse(record, line)
    if refused is None:
        return refused_writes.born_in_inference(record, line) if "nference tensor" in message else None
    written = refused_writes.explain_refused_write(record, refused)
    if written is not None:
        return written
    if "Can't call numpy() on Tensor that requires grad" in message:
        return _numpy(record, refused)
    if (
        "mat1 and mat2 shapes cannot be multiplied" in message
        or "must match the size of tensor b" in message
        or "inconsistent tensor size" in message
    ):
        return _shapes(record, refused, message)
    if "same dtype" in message or "expected scalar type" in message:
        return _dtypes(record, refused)
    return _outside_batch(record, refused) if message.startswith("vmap: inplace arithmetic") else None


def _sparse(record: Record, line: int | None) -> Explained | None:
    made = next((n for n, text in enumerate(record.lines, 1) if "sparse=True" in text), None)
    if made is None:
        return None
    text = f"sparse=True on line {made} makes the gradient of this table sparse: only the rows that were looked up are kept. The optimizer{on_line(line)} needs all rows."
    sites = site(made, "sparse gradients from here") + site(line, "fails here")
    return Explained(text, "Use SGD, SparseAdam or Adagrad for it, or leave sparse=True out.", sites, {"sparse": True})


def _outside_batch(record: Record, refused: Refused) -> Explained | None:
    target = refused.operands[0] if refused.operands else None
    if target is None:
        return None
    name = _name(target)
    text = f"{name}{on_line(target.line)} was made without the batch dimension of vmap, so a row of the batch cannot be written into it on line {refused.line}."
    sites = site(target.line, "made without the batch", name) + site(refused.line, "fails here", name)
    return Explained(
        text,
        "Make it from an input, such as torch.zeros_like(row) or row.new_zeros(...), or build it with torch.stack.",
        sites,
        {"shape": str(list(target.shape or ()))},
    )


def _recursive_drawing(record: Record, line: int | None) -> Explained:
    count = len(record.result.nodes)
    text = f"make_dot{on_line(line)} walks the graph by calling itself once a node, and the graph behind it has {count:,} nodes in a row. Python ends that at its recursion limit."
    return Explained(
        text,
        "The picture here walks with a list, not a function that calls itself: it draws and folds the chain. For make_dot: a shorter loop.",
        site(line, "fails here", "make_dot"),
        {"nodes": count},
    )


def _non_leaf_optimized(record: Record, line: int | None) -> Explained | None:
    named = next(
        (t for t in record.result.tensors if t.requires_grad and not t.is_leaf and t.name in record.text(line)), None
    )
    if named is None:
        return None
    made_by = re.sub(r"Backward\d*$", "", named.grad_fn)
    text = f"{named.name} is the result of an operation ({made_by}) on line {named.line}, not a leaf: backward fills no .grad for it, and an optimizer cannot move it."
    sites = site(named.line, "result since here", named.name) + site(line, "fails here", named.name)
    return Explained(
        text, "Create the leaf last: convert first, then requires_grad_() or nn.Parameter.", sites, {"is leaf": False}
    )


def _numpy(record: Record, refused: Refused) -> Explained:
    operand = refused.operands[0] if refused.operands else None
    name = operand.name or f"the result of {operand.made_by}" if operand else "the tensor"
    where = on_line(operand.line) if operand and operand.line != refused.line else ""
    text = f"{name}{where} requires gradients. NumPy would share the memory and could change values without autograd knowing."
    old = record.text(refused.line)
    edits = (
        record.replaced(refused.line, old.strip().replace(".numpy()", ".detach().numpy()"))
        if old.count(".numpy()") == 1
        else ()
    )
    sites = site(refused.line, "fails here", name) + (
        site(operand.line, "made here", name) if operand and where else ()
    )
    return Explained(
        text,
        "Use t.detach().numpy(), or t.detach().cpu().numpy() from a device.",
        sites,
        {"requires_grad": True},
        edits,
    )


def _shapes(record: Record, refused: Refused, message: str) -> Explained | None:
    shaped = [o for o in refused.operands if o.shape is not None][:3]
    if len(shaped) < 2:
        return None
    said = ", ".join(
        f"{_name(o)}{on_line(o.line) if o.line != refused.line else ''} is {list(o.shape or ())}" for o in shaped
    )
    where = f" in {refused.module}" if refused.module else ""
    sizes = re.search(r"\((\d+)x(\d+) and (\d+)x(\d+)\)", message)
    inner = f" The inner sizes must be equal, and {sizes.group(2)} is not {sizes.group(3)}." if sizes else ""
    text = f"The shapes do not fit together in {refused.operation}{where}: {said}.{inner}"
    sites = site(refused.line, "fails here", refused.operation) + tuple(
        s
        for o in shaped
        for s in site(o.line, "shape from here", _name(o), after=str(list(o.shape or ())))
        if o.line != refused.line
    )
    repair = "Print the shapes on the line before. Inner sizes of a matrix product must be equal; other sizes must be equal or 1."
    return Explained(text, repair, sites, {_name(o): str(list(o.shape or ())) for o in shaped})


def _dtypes(record: Record, refused: Refused) -> Explained | None:
    typed = [o for o in refused.operands if o.dtype][:3]
    if len({o.dtype for o in typed}) < 2:
        return None
    said = ", ".join(f"{_name(o)}{on_line(o.line) if o.line != refused.line else ''} is {o.dtype}" for o in typed)
    text = f"Two tensors have different dtypes and {refused.operation} does not convert: {said}."
    sites = tuple(s for o in typed for s in site(o.line, "dtype from here", _name(o), after=o.dtype)) + site(
        refused.line, "fails here", refused.operation
    )
    return Explained(
        text, "Convert one of them: t.float(), or dtype= at its creation.", sites, {_name(o): o.dtype for o in typed}
    )


def _name(operand: Operand) -> str:
    return operand.name or (f"the result of {operand.made_by}" if operand.made_by else "an operand")
