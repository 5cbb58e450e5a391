"""What single functions of torch and torchviz do that people do not expect."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lab.contract import Finding
from lab.experiments.autograd_graph.findings.record import Record, bare, on_line, site, tensor_words


def gradcheck_in_single_precision(record: Record) -> Iterator[Finding]:
    """gradcheck on an input that is not float64."""
    warned = next((w for w in record.result.warned if "not a double precision floating poin" in w.text), None)
    if warned is None or not any(run.caller == "gradcheck" for run in record.result.passes):
        return
    text = (
        f"gradcheck{on_line(warned.line)} moves its input by 1e-6 and compares differences. In float32 a number near 20 is rounded to steps of 2e-6: the difference is "
        "mostly rounding, so a correct derivative can fail."
    )
    yield Finding(
        level="warning",
        title="gradcheck runs in float32",
        text=text,
        evidence={"step": 1e-6},
        line=warned.line,
        repair="Give it float64 inputs.",
        sites=site(warned.line, "checked in float32 here", "gradcheck"),
    )


def imaginary_dropped(record: Record) -> Iterator[Finding]:
    """A complex tensor cast to a real one."""
    for made in record.result.made:
        source = record.made.get(made.inputs[0]) if made.inputs else None
        if bare(made.operation) not in _CASTS or source is None or made.dtype.startswith("complex"):
            continue
        if source.dtype.startswith("complex") and source.requires_grad and made.requires_grad:
            text = f"The cast{on_line(made.line)} keeps the real part only: the imaginary part is dropped, and no gradient comes back to it."
            yield Finding(
                level="warning", title="The imaginary part is dropped", text=text, evidence={"kept": "real part"}, line=made.line,
                repair="Say which part is meant: .real, .abs() or torch.view_as_real.", sites=site(made.line, "imaginary part dropped here"),
            )  # fmt: skip
            return


_CASTS = {"float", "double", "half", "bfloat16", "to", "type", "type_as", "_to_copy", "to_copy"}


def scatter_twice(record: Record) -> Iterator[Finding]:
    """scatter with a repeated index: one value wins, backward gives both the gradient."""
    for made in record.result.made:
        if bare(made.operation) not in ("scatter", "scatter_", "index_put", "index_put_", "index_copy", "index_copy_"):
            continue
        index = next(
            (record.made[i] for i in made.inputs if i in record.made and record.made[i].dtype == "int64"), None
        )
        if index is None or not made.repeats:
            continue
        places = index.value if isinstance(index.value, list) else []
        repeated = ", ".join(map(str, sorted({v for v in places if places.count(v) > 1}))) or "of the index"
        if made.requires_grad:
            text = (
                f"{bare(made.operation)}{on_line(made.line)} writes to {'place ' if places else 'a place '}{repeated} more than once: one of the values stays, "
                "and which one is not defined. backward gives the gradient of that place to all of them."
            )
            yield Finding(
                level="warning",
                title=f"{bare(made.operation)} with a repeated index",
                text=text,
                evidence={"repeated": repeated},
                line=made.line,
                repair="scatter_add or scatter_reduce says what happens to several values.",
                sites=site(made.line, "repeated index here", tensor_words(index)),
            )
            return


def drawn_by_torchviz(record: Record) -> Iterator[Finding]:
    """What torchviz's picture does not show as it is."""
    for number, text in enumerate(record.lines, 1):
        if "make_dot(" not in text or record.result.fault:
            continue
        parameters = [t.name for t in record.result.tensors if "." in t.name and t.requires_grad]
        given = re.search(r"params\s*=\s*\{(.*?)\}", text)
        if parameters and given and "named_parameters" not in text:
            said = f"make_dot{on_line(number)} writes only the names that params gives it; {', '.join(parameters[:2])} {'are' if len(parameters) > 1 else 'is'} not there and drawn without a name."
            yield Finding(
                level="fact",
                title="torchviz names only what params holds",
                text=said,
                evidence={"parameters": len(parameters)},
                line=number,
                repair="Add dict(module.named_parameters()) to params.",
                sites=site(number, "drawn here", "make_dot"),
            )
            return
        twice = next(
            (
                n
                for n in record.all_nodes
                if len({s.leaf for s in n.saved if s.leaf}) == 1 and sum(bool(s.leaf) for s in n.saved) > 1
            ),
            None,
        )
        if "show_saved=True" in text:
            leaf = next((s.leaf for s in twice.saved if s.leaf), "") if twice else _squared(record, text)
            if leaf:
                said = f"{leaf} is a leaf and both saved operands of one mul. torchviz gives a tensor one box by its identity: the three roles are drawn as one box{on_line(number)}."
                yield Finding(
                    level="fact",
                    title="torchviz draws one box for a tensor in several roles",
                    text=said,
                    evidence={"roles": 3},
                    line=number,
                    repair="The tags of the picture here name each slot.",
                    sites=site(number, "drawn here", leaf),
                )
                return


def _squared(record: Record, text: str) -> str:
    match = re.search(r"\b(\w+) \* \1\b", text)
    return (
        match.group(1) if match and any(t.name == match.group(1) and t.is_leaf for t in record.result.tensors) else ""
    )
