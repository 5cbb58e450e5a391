"""The numbers against routes of their own, each shown to notice a planted error."""

from __future__ import annotations

import io
import math
import pickletools
import random
import zipfile

import pytest
import torch

from lab.contract import silent
from lab.experiments.checkpoint_resume import Params, run
from lab.experiments.checkpoint_resume.files import from_cuda, load_cases, refusal_of, unsafe_globals
from lab.experiments.checkpoint_resume.going_on import leaves, same, storages
from lab.experiments.checkpoint_resume.keys import prefix_of
from lab.experiments.checkpoint_resume.schema import LEAVE_OUT
from lab.workloads.resumable_training import PARTS, TrainingRun, file_of, generators_kept


def a_run(**known) -> TrainingRun:
    return TrainingRun(**({"optimizer": "AdamW", "accumulate": 2, "dropout": 0.2, "seed": 0} | known))


@pytest.mark.parametrize("optimizer", ["AdamW", "SGD"])
@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("stop", [1, 29])
def test_with_everything_restored_every_loss_is_the_same_number(optimizer: str, accumulate: int, stop: int):
    result = run(Params(leave_out="nothing", optimizer=optimizer, accumulate=accumulate, stop_after=stop), silent)
    assert [loss.hex() for loss in result.straight] == [loss.hex() for loss in result.resumed]
    assert result.first_different is None
    assert result.weights_apart == result.eval_gap_model == result.eval_gap_average == 0.0


def test_every_lost_part_is_named_by_its_first_sign():
    """The planted errors: one part at a time."""
    found = {one.left_out: one for one in run(Params(), silent).omissions}
    first = {name: one.first_different for name, one in found.items()}
    assert first == {
        "nothing": None, "model": 0, "buffers": None, "optimizer": 1, "scheduler": 3, "optimizer and scheduler": 1, "scaler": 1,
        "ema": None, "sampler": 0, "torch generator": 0, "python generator": 0, "gradients": 1,
    }  # fmt: skip
    assert found["buffers"].eval_gap_model > 0.05
    assert found["ema"].eval_gap_average > 0.5
    assert found["buffers"].eval_gap_average == found["ema"].eval_gap_model == 0.0
    at_stop = 0.02 * (1 + math.cos(math.pi * 15 / 40)) / 2  # 15 ticks are over
    young = at_stop * (1 + math.cos(math.pi / 40)) / 2  # the recursion of a counter that begins again
    assert found["scheduler"].lr == pytest.approx(young, rel=1e-9)
    assert set(LEAVE_OUT) == set(found)


def test_the_due_rate_is_the_cosine():
    """Closed form: half of the first rate, times one plus the cosine of the share of the schedule that is over."""
    result = run(Params(stop_after=21, accumulate=3), silent)
    for at in (0, 17, 59):
        ticks = (21 + at + 1) // 3
        assert result.lr_straight[at] == pytest.approx(0.02 * (1 + math.cos(math.pi * ticks / 40)) / 2, rel=1e-9)


def test_the_measurement_leaves_the_generators_as_they_were():
    torch.manual_seed(5)
    random.seed(5)
    before = torch.get_rng_state(), random.getstate()
    for view in ("curve", "file", "keys", "loading"):
        run(Params(view=view), silent)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]


def test_parts_are_compared_bit_by_bit():
    with generators_kept():
        one, other = a_run(), a_run()
        parts = one.parts()
        assert set(parts) == set(PARTS)
        assert same(parts, other.parts())
        one.step()
        assert not same(one.parts()["sampler"], other.parts()["sampler"])
        with torch.no_grad():
            bit = next(other.model.parameters()).view(-1)
            bit[0] = torch.nextafter(bit[0], torch.tensor(9.0))
        assert not same(parts["model"], other.parts()["model"])


def test_a_part_weighs_its_storages_and_a_container():
    with generators_kept():
        parts = a_run().parts()
    for name, part in parts.items():
        tensors = {id(t): t for t in leaves(part) if isinstance(t, torch.Tensor)}
        assert sum(storages(part).values()) == sum(t.numel() * t.element_size() for t in tensors.values()), name
        assert sum(storages(part).values()) < len(file_of(part)), name


def globals_of(file: bytes) -> set[str]:
    """The names in the pickle, read from its opcodes: nothing runs."""
    with zipfile.ZipFile(io.BytesIO(file)) as archive:
        pickle = archive.read(next(name for name in archive.namelist() if name.endswith("data.pkl")))
    return {str(argument).replace(" ", ".") for op, argument, _ in pickletools.genops(pickle) if op.name == "GLOBAL"}


def test_what_is_refused_asks_for_a_name_that_the_opcodes_show():
    import argparse

    file = file_of(argparse.Namespace(lr=1))
    assert "argparse.Namespace" in globals_of(file)
    assert unsafe_globals(file) == ["argparse.Namespace"]
    assert "argparse.Namespace" in refusal_of(file)
    plain = file_of({"w": torch.ones(2)})
    assert not refusal_of(plain)
    assert not unsafe_globals(plain)
    for case in load_cases():
        assert case.refused == bool(case.global_) == bool(case.repair), case.what


def test_a_file_from_a_gpu_is_refused_and_loads_mapped():
    forged = from_cuda(file_of({"weight": torch.arange(3.0)}))
    if not torch.cuda.is_available():
        with pytest.raises(RuntimeError, match="CUDA"):
            torch.load(io.BytesIO(forged))
    loaded = torch.load(io.BytesIO(forged), map_location="cpu")["weight"]
    assert torch.equal(loaded, torch.arange(3.0))


@pytest.mark.parametrize(
    ("file", "model", "prefix"),
    [
        (["module.a.w", "module.b.w"], ["a.w", "b.w"], "module."), (["_orig_mod.module.a", "_orig_mod.module.b"], ["a", "b"], "_orig_mod.module."),
        (["a.w", "a.b"], ["a.w", "a.b"], ""), (["x.w", "y.w"], ["a.w"], ""), ([], ["a.w"], ""), (["encoder.a"], ["decoder.a"], ""),
    ],
)  # fmt: skip
def test_the_prefix_of_a_state_dict(file: list[str], model: list[str], prefix: str):
    assert prefix_of(file, model) == prefix


def test_names_that_do_not_fit_load_nothing_and_positions_move():
    result = run(Params(view="keys", names="_orig_mod.module.", order="reversed"), silent)
    assert result.keys is not None
    assert (result.keys.matched, result.keys.changed, len(result.keys.missing)) == (0, 0, 11)
    assert [p.loaded_into for p in result.positions] == [p.saved_for for p in result.positions][::-1]
    level = run(Params(view="keys", names="as in the model", order="as saved"), silent)
    assert level.keys is not None
    assert level.keys.changed == 11
    assert all(p.saved_for == p.loaded_into for p in level.positions)
    assert run(Params(view="keys", names="as in the model", meta=True, assign=True), silent).keys.changed == 11  # type: ignore[union-attr]
