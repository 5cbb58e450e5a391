"""What the figures of the page on modules are given: rows, marks, folding."""

from __future__ import annotations

from typing import Any

from components.module_anatomy.brackets.scene import brackets_scene
from components.module_anatomy.registration.scene import SHOWN_OPEN, action_scene, keys_scene, tree_scene
from lab.records.anatomy import Action, ActionRow, AnatomyResult, Event, KeyRow, Keys, TensorRow, TreeRow, Unregistered


def tensor(name: str, kind: str = "parameter", **more: Any) -> TensorRow:
    trains = "parameter" in kind
    known: dict[str, Any] = {
        "moves": True,
        "gradient": "value" if trains else "none",
        "owned": trains,
        "changed": trains,
        "saved": True,
        "reached": trains or None,
        "requires_grad": trains,
        "owner": name.rpartition(".")[0],
    }
    known |= more
    return TensorRow(name, kind, (2, 3), "float32", 24, 4, identity=hash(name), storage=hash(name), **known)


def module(path: str, depth: int, **more: Any) -> TreeRow:
    known: dict[str, Any] = {"registered": True} | more
    return TreeRow(path, "Linear", 4, depth, identity=hash(path), **known)


def states(row: dict[str, Any]) -> list[str]:
    return [state for state, _ in row["marks"]]


MODEL = AnatomyResult(
    view="tree",
    root="model",
    tree=(module("", 0), module("fc", 1), module("rest[0]", 1, registered=False)),
    tensors=(
        tensor("fc.weight"),
        tensor("fc.bias", changed=False),
        tensor("mean", "buffer", owned=False, changed=False, owner=""),
        tensor(
            "rest[0].weight",
            "parameter of an unregistered module",
            moves=False,
            owned=False,
            changed=False,
            saved=False,
        ),
    ),
    unregistered=(Unregistered("rest", 5, "Put them into nn.ModuleList.", "", "Net", "rest", "list", tensors=1),),
)


def rows(result: AnatomyResult = MODEL) -> dict[str, dict[str, Any]]:
    return {row["path"]: row for row in tree_scene(result)["rows"]}


def test_marks_say_what_was_measured():
    found = rows()
    assert states(found["fc.weight"]) == ["yes", "yes", "yes", "yes"]
    assert states(found["fc.bias"]) == ["yes", "yes", "half", "yes"]
    assert states(found["mean"]) == ["yes", "idle", "idle", "yes"]
    assert states(found["rest[0].weight"]) == ["no", "yes", "no", "no"]
    assert found["rest"]["hidden"]
    assert not found["fc"]["hidden"]


def test_a_module_sums_up_what_is_below_it():
    found = rows()
    assert states(found[""]) == ["half", "yes", "half", "half"]
    assert found["fc"]["marks"][2] == ["half", "1 of 2 below it"]
    assert states(found["rest"]) == ["no", "yes", "no", "no"]


def test_what_is_not_measured_is_no_no():
    unknown = tensor("fc.weight", moves=None, gradient="not measured", owned=None, changed=None, reached=None)
    result = AnatomyResult(view="tree", root="m", tree=(module("", 0), module("fc", 1)), tensors=(unknown,))
    assert states(rows(result)["fc.weight"]) == ["unknown", "unknown", "unknown", "yes"]


def test_a_large_tree_opens_only_the_way_to_what_is_not_registered():
    many = [module(f"b{k}", 1) for k in range(SHOWN_OPEN)]
    beside = Unregistered("b7.heads", 5, "", "b7", "Net", "heads", "list", tensors=1)
    held = tensor("b7.heads[0]", "plain tensor", saved=False, owner="b7")
    result = AnatomyResult(
        view="tree", root="m", tree=(module("", 0), *many), tensors=(tensor("b3.weight"), held), unregistered=(beside,)
    )
    opened = {path for path, row in rows(result).items() if row["open"] and row["type"] == "module"}
    assert opened == {"", "b7"}


def test_keys_say_loaded_only_where_the_values_are_those_of_the_file():
    same = KeyRow("a", "[2] float32", "[2] float32", "fits", changed=False, same_object=True, loaded=True)
    other = KeyRow("b", "[2] float32", "[3] float32", "mismatched", changed=False, same_object=True, loaded=False)
    drawn = keys_scene(Keys((), (), ("b",), (same, other), loaded=1))
    assert [states(row)[2] for row in drawn["rows"]] == ["yes", "no"]
    assert drawn["title"][0] == "1 of 2 loaded"
    assert drawn["rows"][1]["what"] == "[3] float32 → [2] float32"


def test_an_action_marks_what_the_optimizer_lost():
    rows = (ActionRow("w", "[2]", "[2]", False, True, False), ActionRow("b", "[2]", "[2]", True, True, True))
    drawn = action_scene(Action("to meta", rows))
    assert [row["hidden"] for row in drawn["rows"]] == [True, False]
    assert drawn["title"] == ["to meta: 1 of 2 objects stay"]


def test_brackets_are_indented_by_what_is_open():
    def event(mark: str, kind: str = "call", **more: Any) -> Event:
        return Event("forward", "fc", kind, 3, mark=mark, **more)  # pyright: ignore[reportArgumentType]

    hook = event("point", "forward hook", by="program", changed="returns other output", before=1.0, after=2.0)
    events = (event("open"), event("open", "forward"), event("close", "forward"), hook, event("close"))
    drawn = brackets_scene(AnatomyResult(view="hooks", root="m", events=events))
    assert [row["depth"] for row in drawn["rows"]] == [0, 1, 1, 1, 0]
    assert "The 2-norm goes from 1 to 2." in drawn["rows"][3]["said"]
    assert "1 change by them" in drawn["title"]
