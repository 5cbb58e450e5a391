"""Each mark against an independent source, and each source shown to catch a planted error."""

from __future__ import annotations

import io
import itertools
import random
from dataclasses import replace
from typing import Any

import pytest
import torch

from lab.contract import silent
from lab.experiments.module_anatomy import Params, Result, measure, run
from lab.program.run import namespace
from lab.records.anatomy import Event, TensorRow

KINDS = {
    # how a tensor is given to a module -> (line of the program, its name, moves, saved)
    "parameter": ("self.{n} = nn.Parameter(torch.randn({s}))", "{n}", True, True),
    "buffer": ('self.register_buffer("{n}", torch.randn({s}))', "{n}", True, True),
    "fleeting": ('self.register_buffer("{n}", torch.randn({s}), persistent=False)', "{n}", True, False),
    "counter": ('self.register_buffer("{n}", torch.arange({s}))', "{n}", True, True),
    "plain": ("self.{n} = torch.randn({s})", "{n}", False, False),
    "plain integers": ("self.{n} = torch.arange({s})", "{n}", False, False),
    "list": ("self.{n} = [nn.Parameter(torch.randn({s}))]", "{n}[0]", False, False),
    "dict": ('self.{n} = {{"k": torch.randn({s})}}', "{n}['k']", False, False),
    "cast": ("self.{n} = nn.Parameter(torch.randn({s})).double()", "{n}", False, False),
    "layer": ("self.{n} = nn.Linear({s}, {s}, bias=False)", "{n}.weight", True, True),
    "layers": ("self.{n} = nn.ModuleList([nn.Linear({s}, {s}, bias=False)])", "{n}.0.weight", True, True),
    "plain layers": ("self.{n} = [nn.Linear({s}, {s}, bias=False)]", "{n}[0].weight", False, False),
}
Expected = dict[str, tuple[bool, bool]]


def random_tree(seed: int) -> tuple[str, Expected]:
    """A program with nested modules, and what is to be measured of each tensor, written by kind."""
    rng, code, expected = random.Random(seed), [], {}

    def module(prefix: str, depth: int) -> str:
        name = f"M{len(code)}"
        body, place = ["super().__init__()"], len(code)
        code.append("")
        for k in range(rng.randint(1, 4)):
            line, path, moves, saved = KINDS[rng.choice(list(KINDS))]
            n = f"t{k}"
            body.append(line.format(n=n, s=rng.randint(1, 4)))
            expected[prefix + path.format(n=n)] = moves, saved
        for k in range(rng.randint(0, 2) if depth else 0):
            body.append(f"self.c{k} = {module(f'{prefix}c{k}.', depth - 1)}()")
        inner = "\n".join(f"        {line}" for line in body)
        code[place] = f"class {name}(nn.Module):\n    def __init__(self):\n{inner}\n"
        return name

    root = module("", 2)
    return "\n".join(reversed(code)) + f"\nmodel = {root}()\n", expected


def differing(result: Result, expected: Expected) -> set[str]:
    """Names that are missing, too many, or have another mark than written by hand."""
    found = {t.name: (t.moves, t.saved) for t in result.tensors}
    return {name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name)}


@pytest.mark.parametrize("seed", range(25))
def test_moves_and_saved_are_those_written_by_kind(seed: int) -> None:
    code, expected = random_tree(seed)
    assert not differing(run(Params(code=code), silent), expected), code


def test_a_walk_over_parameters_alone_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def only_parameters(roots: Any, census: Any, watch: Any) -> dict[str, bool]:
        known = {id(p) for _, root in roots for p in root.parameters()}
        return {row.name: id(row.tensor) in known for row in census.tensors}

    monkeypatch.setattr(measure, "moved_names", only_parameters)
    code, expected = random_tree(3)
    wrong = differing(run(Params(code=code), silent), expected)
    assert wrong
    assert all(expected[name][0] for name in wrong)  # buffers, which do move


def written_names(code: str) -> set[str]:
    """Keys of the file that torch.save writes."""
    names = namespace()
    exec(code, names)
    file = io.BytesIO()
    torch.save(names["model"].state_dict(), file)
    file.seek(0)
    return set(torch.load(file))


@pytest.mark.parametrize("seed", range(25, 32))
def test_saved_is_what_a_file_has(seed: int) -> None:
    code, _ = random_tree(seed)
    saved = {key for t in run(Params(code=code), silent).tensors for key in t.keys}
    assert saved == written_names(code)
    assert saved - {next(iter(saved), "")} != written_names(code) or not saved


TRAINS = """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.used = nn.Linear(3, 3)
        self.unused = nn.Linear(3, 3)
        self.hidden = [nn.Linear(3, 3)]
        self.frozen = nn.Parameter(torch.ones(3), requires_grad=False)
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return self.hidden[0](self.used(x)) * self.frozen * self.scale


model = Net().double()
model.hidden[0].double()
batch = torch.randn(4, 3, dtype=torch.float64)
"""


def depends(name: str) -> bool:
    """Whether nudging the tensor moves the loss: no gradient involved."""
    names = namespace()
    torch.manual_seed(0)
    exec(TRAINS, names)
    tensor = eval(f"model.{name}", names)
    losses = []
    for _ in range(2):
        with torch.no_grad():
            losses.append(names["model"](names["batch"]).square().mean().item())
            tensor.add_(1e-3)
    return losses[0] != losses[1]


def disagreeing(rows: tuple[TensorRow, ...]) -> set[str]:
    return {t.name for t in rows if t.requires_grad and t.reached != depends(t.name)}


def test_reached_is_what_the_loss_depends_on() -> None:
    rows = run(Params(code=TRAINS), silent).tensors
    assert not disagreeing(rows)
    planted = tuple(replace(t, reached=True) for t in rows)
    assert disagreeing(planted) == {"unused.weight", "unused.bias"}


def test_a_step_changes_what_is_reached_and_held() -> None:
    rows = {t.name: t for t in run(Params(code=TRAINS), silent).tensors}
    changed = {name for name, t in rows.items() if t.changed}
    assert changed == {"used.weight", "used.bias", "scale"}
    assert rows["hidden[0].weight"].gradient == "value"
    assert rows["hidden[0].weight"].owned is False
    assert rows["frozen"].gradient == "none"


TIED = "torch.manual_seed(1)\na, b = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)\n"


def gradients(tied: bool) -> list[torch.Tensor]:
    names = namespace()
    exec(TIED, names)
    a, b = names["a"], names["b"]
    with torch.no_grad():
        b.weight.copy_(a.weight)
    if tied:
        b.weight = a.weight
    b(a(torch.ones(2, 3)).tanh()).square().mean().backward()
    return [a.weight.grad] if tied else [a.weight.grad, b.weight.grad]


def test_the_gradient_of_a_tied_weight_is_the_sum_of_both_uses() -> None:
    both = gradients(tied=False)
    torch.testing.assert_close(gradients(tied=True)[0], both[0] + both[1])
    assert not torch.allclose(gradients(tied=True)[0], both[0])
    result = run(Params(code=f"{TIED}b.weight = a.weight\nmodel = nn.Sequential(a, nn.Tanh(), b)\n"), silent)
    assert [s.names for s in result.shared] == [("0.weight", "2.weight")]
    assert (result.parameter_count, result.count_by_module) == (9, 18)


NESTED = """model = nn.Sequential(nn.Sequential(nn.Linear(3, 3), nn.Tanh()), nn.Linear(3, 2))
batch = torch.randn(2, 3)
log = []
model.register_forward_pre_hook(lambda m, i: log.append("b"))
model.register_forward_pre_hook(lambda m, i: log.append("a"), prepend=True)
model[0].register_full_backward_hook(lambda m, i, o: None)
"""


def grammar_faults(events: tuple[Event, ...]) -> list[str]:
    """Every bracket closes the last one that opened, and hooks lie where torch's documentation puts them."""
    stack, faults = [], []
    for event in events:
        if event.mark == "open":
            stack.append((event.path, event.kind))
        elif event.mark == "close":
            if not stack or stack.pop() != (event.path, event.kind):
                faults.append(f"{event.kind} of {event.path} closes out of turn")
        elif event.kind in ("forward pre-hook", "forward hook") and (not stack or stack[-1] != (event.path, "call")):
            faults.append(f"{event.kind} of {event.path} outside of its call")
    if stack:
        faults.append("left open")
    pre = [e.path for e in events if e.kind == "full backward pre-hook"]
    post = [e.path for e in events if e.kind == "full backward hook"]
    forward = [e.path for e in events if e.kind == "forward hook"]
    if pre != sorted(pre, key=lambda path: -forward.index(path)):  # backward enters what forward left last
        faults.append("backward pre-hooks out of order")
    if set(pre) != set(post) or any(
        post.index(p) < post.index(c) for p, c in itertools.product(pre, pre) if c != p and is_below(c, p)
    ):
        faults.append("a full backward hook before those inside it")
    return faults


def is_below(path: str, other: str) -> bool:
    return path.startswith(f"{other}.") if other else True


def probed() -> tuple[Event, ...]:
    return run(Params(code=NESTED, view="hooks"), silent).events


def test_brackets_follow_the_grammar() -> None:
    assert not grammar_faults(tuple(e for e in probed() if e.by != "program"))


@pytest.mark.parametrize("seed", range(6))
def test_two_events_that_change_places_are_caught(seed: int) -> None:
    events = [e for e in probed() if e.by != "program" and e.phase == "forward"]
    rng = random.Random(seed)
    opening = rng.choice([k for k in range(len(events) - 1) if events[k].mark != events[k + 1].mark])
    events[opening], events[opening + 1] = events[opening + 1], events[opening]
    assert grammar_faults(tuple(events))


def test_hooks_of_the_program_run_in_the_order_of_a_plain_run() -> None:
    names = namespace()
    exec(NESTED, names)
    names["model"](names["batch"])
    own = [e for e in probed() if e.by == "program" and e.phase == "forward"]
    assert names["log"] == ["a", "b"]
    assert [e.line for e in own] == [5, 4]


def test_forward_by_name_runs_the_hooks_inside_and_none_of_its_own() -> None:
    code = NESTED + "inner = model[0][0].register_forward_hook(lambda m, i, o: None)\n"
    by_name = run(Params(code=code, view="hooks", call="model.forward(x)", hook_kinds="the program's own"), silent)
    called = run(Params(code=code, view="hooks", hook_kinds="the program's own"), silent)
    assert [e.path for e in by_name.events if e.by == "program" and e.phase == "forward"] == ["0.0"]
    assert [e.path for e in called.events if e.by == "program" and e.phase == "forward"] == ["", "", "0.0"]
    assert by_name.own_hooks_skipped == 2


@pytest.mark.parametrize("seed", range(32, 40))
def test_bytes_are_conserved(seed: int) -> None:
    """The storages of the census together are all that the model holds, each once."""
    code, _ = random_tree(seed)
    names = namespace()
    exec(code, names)
    result = run(Params(code=code), silent)
    storages = {t.storage: t.bytes for t in result.tensors}
    seen: dict[int, int] = {}
    for t in result.tensors:
        tensor = eval(f"model.{t.name}".replace(".0.", "[0]."), names)
        seen[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
    assert sum(storages.values()) == sum(seen.values())


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("assign", [True, False])
@pytest.mark.parametrize(
    "file", ["its own", "with a prefix", "one layer wider", "half precision", "one key missing", "one key more"]
)
def test_what_is_foreseen_happens(file: str, strict: bool, assign: bool) -> None:
    code = "model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))\n"
    keys = run(Params(code=code, view="state dict", file=file, strict=strict, assign=assign), silent).keys
    assert keys
    complains = bool(keys.mismatched) or (strict and bool(keys.missing or keys.unexpected))
    assert bool(keys.error) == complains
    fits = {row.key for row in keys.rows if row.foreseen in ("fits", "cast")}
    assert {row.key for row in keys.rows if row.changed} == fits  # torch copies what fits before it complains
    for word in (*keys.missing, *keys.unexpected):
        assert not keys.error or word in keys.error
    assert keys.stale == (len([k for k in fits if "running" not in k and "num_batches" not in k]) if assign else 0)


def test_a_cast_that_loses_values_is_counted() -> None:
    code = 'model = nn.Linear(2, 2).half()\nstate = {"weight": torch.full((2, 2), 1e6), "bias": torch.ones(2)}\n'
    keys = run(Params(code=code, view="state dict", file="the program's"), silent).keys
    assert keys
    assert [row.lost for row in keys.rows] == [4, 0]
    assert not keys.error


STAYS = {"to float64": 4, "to meta": 0, "deepcopy": 0, "state_dict round trip": 5, "freeze": 5, "tie": 4, "replace a layer": 3, "parametrize": 4}  # fmt: skip
"""Of four Parameters and a buffer, by hand: a conversion of the dtype keeps Parameters and replaces buffers, meta replaces all."""


@pytest.mark.parametrize("action", STAYS)
def test_objects_that_survive_an_action(action: str) -> None:
    code = 'model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))\nmodel.register_buffer("scale", torch.ones(1))\n'
    done = run(Params(code=code, action=action), silent).action
    assert done
    assert not done.error
    assert sum(row.same_object for row in done.rows) == STAYS[action]
    assert done.ties_after == (action == "tie")
