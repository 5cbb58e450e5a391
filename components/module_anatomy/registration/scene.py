"""From the record of a model to the rows of the tree. Words are made here."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from typing import Any

from lab.quantities import bytes_text
from lab.records.anatomy import Action, AnatomyResult, Keys, TensorRow, TreeRow, Unregistered
from lab.wire import encode

Mark = tuple[str, str]
"""State (yes, no, half, idle, unknown) and what it says in words."""
SHOWN_OPEN = 70
"""Trees with more rows open with their first level only, and with what leads to something not registered."""
COLUMNS = (
    ("moves", "to(dtype) or to(device) reaches it"),
    ("gradient", "a backward from the loss reaches it"),
    ("stepped", "the optimizer holds it and changed it"),
    ("saved", "the state dict has it"),
)
ACTION_COLUMNS = (
    ("before", "the model has it before"),
    ("after", "the model has it afterwards"),
    ("same", "it is the same object before and after"),
    ("held", "an optimizer made before holds what stands there afterwards"),
)
KEY_COLUMNS = (
    ("module", "the module has this key"),
    ("file", "the file has this key"),
    ("loaded", "the module's tensor equals that of the file afterwards"),
    ("changed", "its bits in the module changed"),
)


def tree_scene(result: AnatomyResult) -> dict[str, Any]:
    """Every module, its tensors below it, and what is not registered beside its owner."""
    rows = _rows(result)
    return _scene(rows, COLUMNS, _title(result), _note(result), _description(result), "class or shape", True)


def _scene(
    rows: list[dict[str, Any]],
    columns: tuple[tuple[str, str], ...],
    title: list[str],
    note: str,
    described: str,
    what: str,
    only: bool,
) -> dict[str, Any]:
    return encode(
        {
            "figure": hashlib.sha1(json.dumps([(r["id"], r["depth"]) for r in rows]).encode()).hexdigest()[:12],
            "columns": [{"name": name, "help": text} for name, text in columns],
            "rows": rows,
            "title": title,
            "note": note,
            "description": described,
            "what": what,
            "only": only,
        }
    )


def _rows(result: AnatomyResult) -> list[dict[str, Any]]:
    """In the order in which they are drawn: a module, its tensors, what hangs beside it, its children."""
    tensors: dict[str, list[TensorRow]] = defaultdict(list)
    for tensor in result.tensors:
        tensors[tensor.owner].append(tensor)
    beside: dict[str, list[Unregistered]] = defaultdict(list)
    for u in result.unregistered:
        beside[u.owner].append(u)
    names = defaultdict(list)
    for row in result.tree:
        names[row.identity].append(row.path)
    places = {t.identity: [o.name for o in result.tensors if o.identity == t.identity] for t in result.tensors}
    registered = [row for row in result.tree if row.registered]
    hidden = [row for row in result.tree if not row.registered]
    found: list[dict[str, Any]] = []
    for row in registered:
        found.append(_module(row, names[row.identity], result))
        found += [_tensor(t, row.depth + 1, places[t.identity]) for t in tensors[row.path] if _is_registered(t)]
        for u in beside[row.path]:
            found += _hanging(u, row.depth + 1, hidden, tensors, result)
    totals = _marks_of_modules(found)
    for at, marks in totals.items():
        found[at]["marks"] = marks
    _fold(found)
    return found


def _is_registered(tensor: TensorRow) -> bool:
    return tensor.kind in ("parameter", "buffer", "buffer, not persistent")


def _module(row: TreeRow, names: list[str], result: AnatomyResult) -> dict[str, Any]:
    name = row.path.rpartition(".")[2] or result.root or row.class_
    again = f"one object under {len(names)} names" if len(names) > 1 else ""
    return {
        "id": f"m {row.path}", "type": "module", "name": name, "depth": row.depth, "line": row.set_line or row.line,
        "what": row.class_, "size": "" if row.training else "eval mode", "tag": again, "hidden": not row.registered, "marks": [],
        "path": row.path,
    }  # fmt: skip


def _tensor(tensor: TensorRow, depth: int, names: list[str], name: str = "") -> dict[str, Any]:
    others = [n for n in dict.fromkeys(names) if n != tensor.name]
    shape = (
        "no shape yet" if tensor.shape is None else "scalar" if not tensor.shape else " × ".join(map(str, tensor.shape))
    )
    tag = f"the same as {others[0]}" if others else ""
    if tensor.kind == "buffer, not persistent":
        tag = "not persistent"
    elif tensor.kind == "parameter" and not tensor.requires_grad:
        tag = tag or "frozen"
    elif tensor.kind.startswith("parameter that"):
        tag = "no leaf any more"
    return {
        "id": f"t {tensor.name}", "type": "parameter" if "parameter" in tensor.kind else "buffer" if "buffer" in tensor.kind else "plain",
        "name": name or tensor.name.rpartition(".")[2], "depth": depth, "line": tensor.line, "what": f"{shape} {tensor.dtype}",
        "size": bytes_text(tensor.bytes) if tensor.bytes else "", "tag": tag, "hidden": not _is_registered(tensor),
        "marks": _marks(tensor), "path": tensor.name,
    }  # fmt: skip


def _hanging(
    u: Unregistered, depth: int, hidden: list[TreeRow], tensors: dict[str, list[TensorRow]], result: AnatomyResult
) -> list[dict[str, Any]]:
    """One row for the attribute, then what it holds."""
    what = {"list": "plain list", "dict": "plain dict", "attribute": "plain attribute"}.get(u.way, u.way)
    head = {
        "id": f"u {u.owner} {u.path} {u.line}", "type": "hanging", "name": u.name, "depth": depth, "line": u.line, "what": what, "size": "",
        "tag": "not registered", "hidden": True, "marks": [], "path": u.path, "repair": u.repair,
    }  # fmt: skip
    held = [
        t
        for t in result.tensors
        if not _is_registered(t) and (t.name == u.path or t.name.startswith((f"{u.path}.", f"{u.path}[")))
    ]
    if len(held) == 1 and held[0].name == u.path:
        alone = _tensor(held[0], depth, [])
        return [alone | {"id": head["id"], "tag": alone["tag"] or "not registered", "repair": u.repair}]
    found, inside = (
        [head],
        [row for row in hidden if row.path == u.path or row.path.startswith((f"{u.path}.", f"{u.path}["))],
    )
    for row in inside:
        at = depth + 1 + row.depth - inside[0].depth
        name = row.path.removeprefix(u.path) if row.depth == inside[0].depth else row.path.rpartition(".")[2]
        found.append(_module(row, [row.path], result) | {"depth": at, "name": name.lstrip(".") or row.class_})
        found += [_tensor(t, at + 1, []) for t in tensors[row.path]]
    loose = [t for t in held if not any(t.owner == row.path for row in inside)]
    return found + [_tensor(t, depth + 1, [], t.name.removeprefix(u.path).lstrip(".")) for t in loose]


def _marks(t: TensorRow) -> list[Mark]:
    trains = t.requires_grad or "parameter" in t.kind
    moves = {
        True: ("yes", "to() moves it"),
        False: ("no", "to() leaves it as it is"),
        None: ("unknown", "not measured"),
    }[t.moves]
    gradient = {
        "value": ("yes", "gets a gradient"),
        "zero": ("half", "gets a gradient of exactly 0"),
        "none": ("no", "gets no gradient") if trains else ("idle", "needs no gradient"),
        "not measured": ("unknown", "gradient not measured") if trains else ("idle", "needs no gradient"),
    }[t.gradient]
    return [moves, gradient, _stepped(t, trains), ("yes", "saved") if t.saved else ("no", "not in the state dict")]


def _stepped(t: TensorRow, trains: bool) -> Mark:
    if t.owned is None:
        return "unknown", "not measured"
    if not t.owned:
        return ("no", "no optimizer holds it") if trains else ("idle", "nothing for an optimizer")
    if t.changed is None:
        return "yes", "the optimizer holds it; no step was measured"
    return (
        ("yes", "the optimizer holds it, and a step changed it")
        if t.changed
        else ("half", "the optimizer holds it, and a step changed nothing")
    )


def _marks_of_modules(rows: list[dict[str, Any]]) -> dict[int, list[Mark]]:
    """Each module sums up what is below it: all, none, or some."""
    found = {}
    for at, row in enumerate(rows):
        if row["type"] not in ("module", "hanging") or row["marks"]:
            continue
        below = []
        for other in rows[at + 1 :]:
            if other["depth"] <= row["depth"]:
                break
            if other["type"] not in ("module", "hanging"):
                below.append(other["marks"])
        row["tensors"] = len(below)
        found[at] = [_summed([marks[k] for marks in below]) for k in range(4)]
    return found


def _summed(marks: list[Mark]) -> Mark:
    counted = [state for state, _ in marks if state != "idle"]
    if not counted:
        return "idle", "nothing below it"
    if all(state == "unknown" for state in counted):
        return "unknown", "not measured"
    yes = sum(state == "yes" for state in counted)
    state = "yes" if yes == len(counted) else "no" if not yes and "half" not in counted else "half"
    return state, f"{yes} of {len(counted)} below it"


def _fold(rows: list[dict[str, Any]]) -> None:
    """Open what can be shown; in a large tree only the way to what is not registered."""
    small = len(rows) <= SHOWN_OPEN
    way: set[int] = set()
    for at, row in enumerate(rows):
        if row["type"] == "hanging" or (row["hidden"] and "repair" in row):
            depth = row["depth"]
            for above in range(at - 1, -1, -1):
                if rows[above]["depth"] < depth:
                    depth = rows[above]["depth"]
                    way.add(above)
    for at, row in enumerate(rows):
        row["open"] = small or row["depth"] == 0 or at in way


def _title(result: AnatomyResult) -> list[str]:
    rows = list({t.identity: t for t in result.tensors}.values())
    hidden = sum(not _is_registered(t) for t in rows)
    found = [f"{result.parameter_count:,} parameters in {sum(t.kind == 'parameter' for t in rows)} tensors"]
    buffers = sum(t.kind.startswith("buffer") and _is_registered(t) for t in rows)
    found += [f"{buffers} buffers"] if buffers else []
    return [*found, f"{hidden} tensors not registered" if hidden else "all tensors registered"]


def _note(result: AnatomyResult) -> str:
    parts = []
    if result.no_gradient:
        parts.append(f"No gradient was measured. {result.no_gradient}")
    elif result.loss_name:
        parts.append(f"One step: {result.loss_name}, {result.optimizer}.")
    if result.batch_by_lab:
        parts.append(f"The program has no batch: an input of shape {result.batch_by_lab} was made for the first layer.")
    if result.no_moves:
        parts.append(f"Moves was not measured: {result.no_moves}.")
    if result.cut:
        parts.append("The tree is cut: it has more rows than are shown.")
    return " ".join(parts)


def _description(result: AnatomyResult) -> str:
    title = ", ".join(_title(result))
    names = ", ".join(u.path for u in result.unregistered[:5])
    return f"Tree of {result.root or 'the model'}: {title}." + (f" Not registered: {names}." if names else "")


_WORDS = {
    "fits": "fits",
    "cast": "cast to the module's dtype",
    "missing": "missing in the file",
    "unexpected": "not in the module",
    "mismatched": "another shape",
}


def keys_scene(keys: Keys) -> dict[str, Any]:
    """A row a key."""
    rows = []
    for row in keys.rows:
        shapes = row.here if row.here == row.there else " → ".join(text for text in (row.there, row.here) if text)
        marks: list[Mark] = [
            ("yes", "in the module") if row.here else ("no", "not in the module"),
            ("yes", "in the file") if row.there else ("no", "not in the file"),
            ("idle", "nothing to load into")
            if not row.here
            else ("yes", "has the file's values")
            if row.loaded
            else ("no", "keeps its own values"),
            ("idle", "not in the module")
            if row.changed is None
            else ("yes", "its bits changed")
            if row.changed
            else ("no", "as before"),
        ]
        rows.append(
            {
                "id": f"k {row.key}",
                "type": "parameter" if row.foreseen in ("fits", "cast") else "plain",
                "name": row.key,
                "depth": 0,
                "line": None,
                "what": shapes,
                "size": "",
                "tag": "" if row.foreseen == "fits" else _WORDS[row.foreseen],
                "hidden": row.foreseen in ("missing", "unexpected", "mismatched"),
                "marks": marks,
                "path": row.key,
                "open": True,
            }
        )
    total = sum(bool(row.here) for row in keys.rows)
    counts = [
        f"{len(keys.missing)} missing",
        f"{len(keys.unexpected)} unexpected",
        f"{len(keys.mismatched)} mismatched",
    ]
    title = [f"{keys.loaded} of {total} loaded", *counts]
    told = f"load_state_dict raised: {keys.error}" if keys.error else "load_state_dict raised nothing."
    note = f"{told}{' Warned: ' + keys.warned if keys.warned else ''}"
    return _scene(
        rows, KEY_COLUMNS, title, note, f"Keys of a state dict: {', '.join(title)}. {told}", "file → module", False
    )


def action_scene(action: Action) -> dict[str, Any]:
    """A row a tensor of the copy, before and after what was done to it."""
    rows = []
    for row in action.rows:
        trains = row.owned_before or row.owned_after or not row.before
        marks: list[Mark] = [
            ("yes", row.before) if row.before else ("no", "not there before"),
            ("yes", row.after) if row.after else ("no", "gone"),
            ("yes", "the same object") if row.same_object else ("no", "another object"),
            ("yes", "the optimizer holds it")
            if row.owned_after
            else ("no", "the optimizer does not hold it")
            if trains
            else ("idle", "nothing for an optimizer"),
        ]
        changed = row.before if row.before == row.after else " → ".join(t for t in (row.before, row.after) if t)
        rows.append(
            {
                "id": f"a {row.name}",
                "type": "parameter" if trains else "buffer",
                "name": row.name,
                "depth": 0,
                "line": None,
                "what": changed,
                "size": "",
                "tag": "" if row.before and row.after else "new" if row.after else "gone",
                "hidden": trains and not row.owned_after,
                "marks": marks,
                "path": row.name,
                "open": True,
            }
        )
    same = sum(row.same_object for row in action.rows)
    title = [f"{action.action}: {same} of {sum(bool(row.before) for row in action.rows)} objects stay"]
    note = "Done to a copy of the model; an optimizer over parameters() was made before it."
    return _scene(rows, ACTION_COLUMNS, title, note, f"Tensors before and after: {title[0]}.", "before → after", False)
