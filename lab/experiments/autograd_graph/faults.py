"""From an error of torch or Python to what it means and what to change. Only what the message itself does not say."""

from __future__ import annotations

import re
from collections.abc import Iterable

from lab.contract import Fault
from lab.records.graph import Node, Saved
from lab.records.program import Ended

_KNOWN: list[tuple[str, str, str]] = [
    # (pattern in "Type: message", explanation, repair)
    (
        r"modified by an inplace operation",
        "A node kept this tensor for its backward formula, and the program has overwritten it since. torch compares version "
        "counters, sees that the kept value is gone, and refuses to compute a wrong gradient.",
        "Write into a copy (t = t.clone() before the write) or use the out-of-place form (t = t + 1 instead of t += 1).",
    ),
    (
        r"backward through the graph a second time",
        "The first backward freed the saved tensors of this graph, so a second one has nothing to compute with.",
        "Add the losses and call backward once; or run the forward again; or keep the graph with retain_graph=True. "
        "In a loop, detach what is carried over: h = h.detach().",
    ),
    (
        r"does not require grad and does not have a grad_fn",
        "The tensor has no graph: nothing that requires gradients leads to it by differentiable operations.",
        "Set requires_grad=True on a leaf, and look for detach, no_grad, .item(), integer results or torch.tensor(t) on the way.",
    ),
    (
        r"a view of a leaf Variable that requires grad is being used in an in-place",
        "Indexing or reshaping gave a view of a leaf, and the write goes through it into the leaf, whose history must stay empty.",
        "Edit parameters inside `with torch.no_grad():`.",
    ),
    (
        r"a leaf Variable that requires grad is being used in an in-place",
        "A leaf that requires gradients has no history; an in-place operation would give it one.",
        "Edit it inside `with torch.no_grad():`, or compute a new tensor: w = w - lr * g.",
    ),
    (
        r"more than one element of the written-to tensor refers to a single memory location",
        "expand() repeats memory without copying it (stride 0), so one write would hit several elements. This has nothing to do with autograd.",
        "Copy first: t = t.clone() or t.contiguous().",
    ),
    (
        r"grad can be (implicitly )?(be )?(implicitly )?created only for (real )?scalar outputs",
        "backward() without an argument starts from the gradient 1, which is defined for one real number only.",
        "Reduce to a scalar first (.sum() or .mean()), or pass gradient=..., a tensor of the same shape.",
    ),
    (
        r"Can't call numpy\(\) on Tensor that requires grad",
        "NumPy would share the memory and could change values without autograd knowing.",
        "Use t.detach().numpy(), or t.detach().cpu().numpy() from a device.",
    ),
    (
        r"returned an incorrect number of gradients",
        "backward of a custom Function returns one value for each argument of forward, in the same order.",
        "Return None for the arguments that need no gradient.",
    ),
    (
        r"BackwardHookFunction.* is a view and is being modified inplace",
        "A full backward hook wraps the output of the module in a node whose result must not be overwritten.",
        "Use inplace=False in the next layer, or hook the output tensor instead of the module.",
    ),
    (
        r"appears to not have been used in the graph",
        "There is no path from this input to the result in the graph. A derivative that was computed without create_graph, or inside a "
        "Function marked once_differentiable, has none either.",
        "Check that the result depends on the input; allow_unused=True gives None instead of this error.",
    ),
    (
        r"marked with @once_differentiable",
        "The backward of this custom Function was computed without a graph, so it has no derivative of its own.",
        "Write backward with differentiable operations on saved tensors and remove once_differentiable.",
    ),
    (
        r"mat1 and mat2 shapes cannot be multiplied|size of tensor a .* must match the size of tensor b|inconsistent tensor size",
        "The shapes do not fit together.",
        "Print the shapes on the line before. Inner sizes of a matrix product must be equal; other sizes must be equal or 1.",
    ),
    (
        r"expected .* same dtype|must have the same dtype|expected scalar type",
        "Two tensors have different dtypes and this operation does not convert.",
        "Convert one of them: t.float(), or dtype= at its creation.",
    ),
    (
        r"Only Tensors of floating point .*dtype can require gradients",
        "A derivative needs a continuous value; integers have none.",
        "Make the tensor floating point: torch.tensor([1.0, 2.0]).",
    ),
    (
        r"^RecursionError",
        "A function called itself too deeply. Tools that walk a graph recursively fail like this on long chains.",
        "Walk with a loop and a list of what is left to do.",
    ),
    (
        r"^ModuleNotFoundError: No module named 'torch\._",
        "This part of torch is read from a file on first use, and a program here has no files. torch.compile needs files and a compiler.",
        "Leave out what compiles, exports or starts workers; or run the lab with LAB_TYPED_CODE=trusted on your own machine.",
    ),
    (
        r"Parent directory .* does not exist|open file failed because of errno",
        "A program here has no files, so nothing can be saved or loaded.",
        "Keep it in memory: a variable, or copy.deepcopy(module.state_dict()).",
    ),
    (
        r"^(PermissionError|OSError|BlockingIOError|NotADirectoryError)",
        "A program here has no files, no network and no other processes: the operating system refuses them.",
        "Keep everything in memory: make the data in the program.",
    ),
    (
        r"^TimeLimit",
        "The program did not come to an end in time.",
        "Look at the loop on this line; use fewer steps or smaller tensors.",
    ),
    (
        r"^MemoryLimit",
        "The program asked for more memory than one run may use.",
        "Use smaller tensors; look for a list that grows in a loop.",
    ),
    (r"^OutputLimit", "What was printed up to here is kept.", "Print less: every hundredth step, or a summary."),
    (r"^SystemExit", "The program ended itself.", "Leave out exit(): a program ends after its last line."),
    (r"^Refused", "", "The names torch, nn, F and math are there without import."),
    (
        r"^(SyntaxError|IndentationError|TabError)",
        "Python cannot read the program at this place.",
        "Look at the mark, and at the end of the line before it.",
    ),
    (
        r"^NameError",
        "The name is not defined at this point.",
        "Names torch, nn, F and math are given; everything else must be assigned first.",
    ),
]


def fault_of(ended: Ended | None, nodes: Iterable[Node]) -> Fault | None:
    """The fault of a program that ended early, with the tensor named where the graph shows it."""
    if ended is None:
        return None
    explanation, repair = explanation_of(ended.type, ended.message, nodes)
    return Fault(ended.type, ended.message, ended.line, explanation, repair)


def explanation_of(kind: str, message: str, nodes: Iterable[Node]) -> tuple[str, str]:
    """(explanation, repair); empty texts when the message says it all."""
    head = f"{kind}: {message}"
    for pattern, explanation, repair in _KNOWN:
        if re.search(pattern, head):
            if "inplace operation" in pattern:
                explanation = _overwritten(nodes) or explanation
            return explanation, repair
    return "", ""


def overwritten_slots(nodes: Iterable[Node]) -> list[tuple[Node, Saved]]:
    """Saved tensors whose version counter has moved since they were saved."""
    return [
        (node, saved)
        for node in nodes
        for saved in node.saved
        if saved.saved_version is not None and saved.current_version not in (None, saved.saved_version)
    ]


def describe_slot(node: Node, saved: Saved) -> str:
    """The tensor that a slot holds, in words: "its output", "w", "its input self"."""
    if saved.slot.startswith("result"):
        return f"its own output{f' {saved.variable}' if saved.variable else ''}"
    if saved.variable or saved.leaf:
        return str(saved.variable or saved.leaf)
    if saved.shape == () and saved.dtype == "float64" and not saved.view_of:
        return "a constant"
    return f"its input {saved.slot}{f', which is {saved.view_of} seen in another shape,' if saved.view_of else ''}"


def _overwritten(nodes: Iterable[Node]) -> str:
    for node, saved in overwritten_slots(nodes):
        where = f" on line {node.line}" if node.line else ""
        by = f" by {saved.changed_by} on line {saved.changed_line}" if saved.changed_line else ""
        return (
            f"{node.label}{where} kept {describe_slot(node, saved)} for its backward at version {saved.saved_version}. "
            f"It was overwritten{by} and is now at version {saved.current_version}, so the kept value is gone."
        )
    return ""
