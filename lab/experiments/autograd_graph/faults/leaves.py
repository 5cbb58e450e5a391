"""Tensors that are results where a leaf is wanted, leaves that must stay as they are, and who asks them for more."""

from __future__ import annotations

import re

from lab.experiments.autograd_graph.findings import leaves, refused_writes
from lab.experiments.autograd_graph.findings.record import Explained, Record, on_line, site
from lab.records.graph import Named
from lab.records.operations import Operand
from lab.records.program import Ended


def explain(record: Record, ended: Ended) -> Explained | None:
    message, line, refused = ended.message, ended.line, record.refused(ended)
    if ended.type in ("TypeError", "AttributeError") and "NoneType" in message:
        return leaves.explain_none_gradient(record, message, line) or _never_filled(record, line)
    if "can't optimize a non-leaf Tensor" in message:
        return _non_leaf_optimized(record, line)
    if "does not support sparse gradients" in message:
        return _sparse(record, line)
    if "can only change requires_grad flags of leaf" in message:
        return _flag_of_a_result(record, line)
    if "register a hook on a tensor that doesn't require" in message or "can't retain_grad on Tensor" in message:
        return _no_gradient_arrives(record, line)
    if "attempting to assign a gradient of size" in message:
        return _gradient_assigned(record, message, line)
    if refused is None or not refused.operands:
        return refused_writes.born_in_inference(record, line) if "nference tensor" in message else None
    written = refused_writes.explain_refused_write(record, refused)
    if written is not None:
        return written
    if "Can't call numpy() on Tensor that requires grad" in message:
        return _numpy(record, refused.line, refused.operands[0])
    if "support the deepcopy protocol" in message:
        return _copied(refused.line, refused.operands[0])
    if "floating point" in message and "require gradients" in message:
        return _integers(record, refused.line, refused.operands[0])
    if "cannot resize variables that require grad" in message:
        return _resized(refused.line, refused.operands[0])
    return None


def _name(operand: Operand) -> str:
    return operand.name or f"the result of {operand.made_by or 'an operation'}"


def _never_filled(record: Record, line: int | None) -> Explained | None:
    """``.grad`` read while no pass had run, or of a leaf that asks for none."""
    read = re.findall(r"([A-Za-z_][\w.\[\]]*)\.grad\b", record.text(line))
    named = next((t for t in record.result.tensors if t.name in read and t.is_leaf and t.grad is None), None)
    if named is None:
        return None
    sites = site(line, "fails here", f"{named.name}.grad") + site(named.line, "born here", named.name)
    if not named.requires_grad:
        text = f"{named.name}{on_line(named.line)} does not require gradients, so its .grad stays None, and line {line} reads it."
        return Explained(text, f"Create {named.name} with requires_grad=True.", sites, {"requires_grad": False})
    if record.result.passes:
        return None
    text = f"{named.name}.grad is None: no backward had run before line {line} read it."
    return Explained(text, "Call backward on the loss first.", sites, {"backward passes": 0})


def _result(record: Record, name: str) -> Named | None:
    return next((t for t in record.result.tensors if t.name == name and not t.is_leaf), None)


def _flag_of_a_result(record: Record, line: int | None) -> Explained | None:
    match = re.search(r"([A-Za-z_][\w.]*)\.requires_grad(_\(|\s*=)", record.text(line))
    named = _result(record, match[1]) if match else None
    if named is None:
        return None
    made_by = re.sub(r"Backward\d*$", "", named.grad_fn)
    text = (
        f"{named.name} is the result of an operation ({made_by}){on_line(named.line)}. Whether a result requires gradients follows from "
        f"what it was computed from; line {line} can switch leaves only."
    )
    sites = site(named.line, "result since here", named.name) + site(line, "fails here", named.name)
    repair = f"For its values without the graph: {named.name} = {named.name}.detach()."
    return Explained(text, repair, sites, {"is leaf": False})


def _no_gradient_arrives(record: Record, line: int | None) -> Explained | None:
    hook = next((h for h in reversed(record.result.hooks) if h.line == line), None)
    named = next((t for t in record.result.tensors if hook and t.name == hook.name), None)
    if hook is None or named is None:
        return None
    text = f"{named.name}{on_line(named.line)} does not require gradients: none will arrive at it for {hook.kind}{on_line(line)}."
    sites = site(named.line, "born without requires_grad", named.name) + site(line, "fails here", hook.kind)
    repair = f"Create {named.name} with requires_grad=True before."
    return Explained(text, repair, sites, {"requires_grad": False})


def _gradient_assigned(record: Record, message: str, line: int | None) -> Explained | None:
    sizes = re.search(r"gradient of size '(\[.*?\])' to a tensor of size '(\[.*?\])'", message)
    match = re.search(r"([A-Za-z_][\w.\[\]]*)\.grad\s*=", record.text(line))
    named = next((t for t in record.result.tensors if match and t.name == match[1]), None)
    if sizes is None or named is None:
        return None
    text = f"{named.name}{on_line(named.line)} has shape {sizes[2]}, and line {line} gives its .grad the shape {sizes[1]}. Both are the same, one number for each element."
    sites = site(line, "fails here", f"{named.name}.grad", sizes[1], sizes[2]) + site(
        named.line, "born here", named.name
    )
    return Explained(text, f"Assign a tensor of shape {sizes[2]}.", sites, {"given": sizes[1], "needed": sizes[2]})


def _copied(line: int | None, operand: Operand) -> Explained:
    name = _name(operand)
    text = f"{name} is the result of {operand.made_by or 'an operation'}{on_line(operand.line)} and holds the graph that it came from. deepcopy{on_line(line)} copies leaves only."
    sites = site(operand.line, "result since here", name) + site(line, "fails here", name)
    short = operand.name or "t"
    repair = f"Copy the values: {short}.detach().clone(). A module keeps results out of self, or detaches them, before it is copied."
    return Explained(text, repair, sites, {"is leaf": False})


def _integers(record: Record, line: int | None, operand: Operand) -> Explained:
    name = _name(operand)
    text = (
        f"{name}{on_line(operand.line)} is {operand.dtype}. A derivative needs a continuous value; integers have none."
    )
    sites = site(operand.line, "dtype from here", name, after=operand.dtype) + site(line, "fails here", name)
    repair = "Make it floating point where it is created, such as torch.tensor([1.0, 2.0]) or dtype=torch.float32."
    return Explained(text, repair, sites, {"dtype": operand.dtype})


def _resized(line: int | None, operand: Operand) -> Explained:
    name = _name(operand)
    text = f"{name}{on_line(operand.line)} requires gradients: what was recorded with its shape would no longer fit after the resize{on_line(line)}."
    sites = site(line, "fails here", name) + site(operand.line, "born here", name)
    repair = "Make a new tensor of the size that is wanted, such as t[:2] or torch.cat."
    return Explained(text, repair, sites, {"requires_grad": operand.requires_grad})


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


def _sparse(record: Record, line: int | None) -> Explained | None:
    made = next((n for n, text in enumerate(record.lines, 1) if "sparse=True" in text), None)
    if made is None:
        return None
    text = f"sparse=True on line {made} makes the gradient of this table sparse: only the rows that were looked up are kept. The optimizer{on_line(line)} needs all rows."
    sites = site(made, "sparse gradients from here") + site(line, "fails here")
    return Explained(text, "Use SGD, SparseAdam or Adagrad for it, or leave sparse=True out.", sites, {"sparse": True})


def _numpy(record: Record, line: int | None, operand: Operand) -> Explained:
    name = _name(operand)
    where = on_line(operand.line) if operand.line != line else ""
    text = f"{name}{where} requires gradients. NumPy would share the memory and could change values without autograd knowing."
    sites = site(line, "fails here", name) + (site(operand.line, "made here", name) if where else ())
    edits = record.changed(line, ".numpy()", ".detach().numpy()")
    repair = "Use t.detach().numpy(), or t.detach().cpu().numpy() from a device."
    return Explained(text, repair, sites, {"requires_grad": True}, edits)
