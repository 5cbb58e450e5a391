"""The panels against torch's own tables, closed forms and plain loops; a planted error is caught by each."""

from __future__ import annotations

import itertools

import pytest
import torch

from lab.contract import silent
from lab.experiments.tensor_anatomy import Params, Result, explain, run
from lab.experiments.tensor_anatomy.einsum import loops, plan, read_einsum
from lab.experiments.tensor_anatomy.panels.data import picture
from lab.experiments.tensor_anatomy.panels.precision import counted_by_loop, narrow_product, relative

RANK = (
    "bool",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex64",
    "complex128",
)


@pytest.fixture(scope="module")
def promotion() -> Result:
    return run(Params(view="promotion"), silent)


def category(dtype: str) -> int:
    return 0 if dtype == "bool" else 1 if "int" in dtype else 2 if "float" in dtype else 3


def by_hand(a: str, b: str) -> str:
    """The table of the documentation, for the classic dtypes."""
    if a == b:
        return a
    if category(a) != category(b):
        low, high = sorted((a, b), key=category)
        return "complex128" if (low, high) == ("float64", "complex64") else high
    if {a, b} == {"float16", "bfloat16"}:
        return "float32"
    if {a, b} == {"uint8", "int8"}:
        return "int16"
    return max(a, b, key=RANK.index)


def test_promotion_agrees_with_the_rule_and_with_torch(promotion: Result):
    pairs = {(p.a, p.b): p for p in promotion.promotion}
    assert len(pairs) == 17 * 17
    for a, b in itertools.product(RANK, RANK):
        assert pairs[a, b].result == by_hand(a, b), (a, b)
    assert all(p.result == p.documented for p in pairs.values() if p.result)


def test_a_zero_dim_tensor_taken_for_one_with_dimensions_is_caught(promotion: Result):
    """Planted: the rule of the first tier for the second."""
    tier = next(t for t in promotion.tiers if "tensor(1., float64)" in t.expression and "float32" in t.expression)
    assert tier.result == "float32" != by_hand("float32", "float64")


def test_the_tiers_are_as_written(promotion: Result):
    said = {t.expression: (t.result, t.value) for t in promotion.tiers}
    assert said["ones(2, uint8) * 300"] == ("uint8", "[44, 44]")
    assert said["ones(2, int64) / tensor(1., float64)"][0] == "float64"
    assert said["zeros(2, int64)[0] = 2.9"] == ("int64", "[2, 0]")
    assert said["ones(2, 2) @ ones(2, 2, float64)"][0] == "refused"


def test_counters_stop_where_the_significand_ends():
    result = run(Params(view="precision", count=1000, inner=64), silent)
    stops = {row.dtype: row.counts_to for row in result.formats}
    assert stops["bfloat16"] == counted_by_loop(torch.bfloat16, 1000) == 256
    assert stops["float16"] == counted_by_loop(torch.float16, 5000) == 2048
    assert stops["float32"] == 2**24
    assert counted_by_loop(torch.bfloat16, 100) != stops["bfloat16"]  # a loop that is too short


def test_the_product_is_rounded_once_and_the_loop_each_time():
    generator = torch.Generator().manual_seed(5)
    a, b = torch.randn(8, 256, generator=generator).bfloat16(), torch.randn(256, 8, generator=generator).bfloat16()
    true = a.double() @ b.double()
    once = true.bfloat16()
    assert relative(a @ b, true) == pytest.approx(relative(once, true), rel=0.2)
    assert relative(narrow_product(a, b), true) > 3 * relative(once, true)
    planted = (a.float() @ b.float()).bfloat16()  # adds up in float32
    assert relative(planted, true) < relative(narrow_product(a, b), true) / 3


def test_errors_are_against_the_same_numbers():
    result = run(Params(view="precision", count=10_000, inner=16), silent)
    x = torch.rand(10_000, generator=torch.Generator().manual_seed(0))
    row = dict(
        zip(
            zip(result.errors.what, result.errors.dtype, result.errors.how, strict=True),
            result.errors.error,
            strict=True,
        )
    )
    total = torch.zeros(())
    for value in x:
        total = total + value
    true = x.double().sum().item()
    assert row["sum", "float32", "sequential"] == pytest.approx(abs(total.item() - true) / true, rel=1e-9)
    assert row["sum", "float32", "torch"] != row["sum", "float32", "sequential"]


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(2, 3), (3, 4)]), ("bhqd,bhkd->bhqk", [(2, 2, 3, 4), (2, 2, 5, 4)]), ("ii->i", [(3, 3)]),
        ("ij->", [(2, 3)]), ("i,j->ij", [(2,), (3,)]), ("ij,jk", [(2, 3), (3, 2)]),
    ],
)  # fmt: skip
def test_einsum_equals_its_loops(equation: str, shapes: list[tuple[int, ...]]):
    inputs = [torch.randn(shape, generator=torch.Generator().manual_seed(i)) for i, shape in enumerate(shapes)]
    found = read_einsum(equation, inputs, torch.einsum(equation, *inputs), 1)
    assert found is not None
    assert found.difference is not None
    assert found.difference < 1e-5


def test_a_dropped_index_is_caught():
    a, b = torch.ones(2, 3), torch.ones(3, 2)
    size = {"i": 2, "j": 3, "k": 2}
    right = loops(["ij", "jk"], "ik", size, [a, b])
    assert torch.equal(right, torch.full((2, 2), 3.0, dtype=torch.float64))
    assert loops(["ij", "jk"], "i", size, [a, b]).shape != right.shape


def test_what_an_einsum_becomes():
    assert plan("ij,jk->ik", [torch.ones(2, 3), torch.ones(3, 4)]).count("bmm") == 1
    assert not {"bmm", "mul", "sum"} & set(plan("ii->i", [torch.ones(3, 3)]))


def test_bridges_are_found_by_writing():
    result = run(Params(view="numpy"), silent)
    shares = {row.call: row.shares for row in result.bridges}
    assert shares["torch.from_numpy(a)"]
    assert shares["t.numpy()"]
    assert shares["torch.from_numpy(read-only array)"]
    assert shares["torch.tensor(a)"] is False
    assert shares["t.numpy().copy()"] is False
    assert shares["torch.as_tensor(a, dtype=torch.float32)"] is False


def test_moves_and_mixtures():
    result = run(Params(view="devices"), silent)
    moves = {row.call: row for row in result.moves}
    assert (moves["m.to(torch.float64)"].same_object, moves["t.to(torch.float64)"].same_object) == (True, False)
    assert moves["t.to(t.dtype)"].same_object
    assert moves['m.to("meta")'].optimizer_keeps is False
    assert all(row.refused_by_rule for row in result.mixed if row.call not in ("tensor(2.) * b", "a.to(b.device)"))
    assert not any(row.refused_by_rule for row in result.mixed if row.call in ("tensor(2.) * b", "a.to(b.device)"))
    assert not all(row.refused_by_torch for row in result.mixed)


def test_layouts_follow_the_closed_form():
    (plain, last, twice, one) = run(Params(view="devices"), silent).layouts
    assert plain.stride == (48, 16, 4, 1)
    assert last.stride == twice.stride == (48, 1, 12, 3)
    assert (last.view, plain.view) == ("refused", "a view")
    assert (one.contiguous, one.channels_last) == (True, True)


def test_the_swapped_layout_is_counted():
    result = run(Params(view="data"), silent)
    image = picture().tolist()
    flat = [number for row in image for pixel in row for number in pixel]
    wrong = sum(flat[c * 24 + h * 6 + w] != image[h][w][c] for c in range(3) for h in range(4) for w in range(6))
    assert result.swap is not None
    assert result.swap.wrong_elements == wrong
    assert result.swap.permuted == result.swap.pixel != result.swap.reshaped


def test_tokens_grow_by_one():
    lengths = [step.shape[1] for step in run(Params(view="data"), silent).data if "torch.cat([tokens" in step.call]
    assert [b - a for a, b in itertools.pairwise(lengths)] == [1, 1, 1]


@pytest.mark.parametrize("view", ["promotion", "precision", "numpy", "devices", "data"])
def test_each_panel_says_something(view: str):
    assert explain(run(Params(view=view, count=1000, inner=64), silent))
