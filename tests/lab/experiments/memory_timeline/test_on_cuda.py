"""What CUDA would do differently, by hand."""

from __future__ import annotations

from dataclasses import replace

from lab.experiments.memory_timeline.on_cuda import CUBLAS_BYTES, cuda_differences
from lab.experiments.memory_timeline.rulers import allocator_models
from lab.experiments.memory_timeline.schema import Params
from lab.experiments.memory_timeline.tracking import track

DROPOUT = """model = nn.Sequential(nn.Linear(64, 512), nn.Dropout(0.5), nn.Linear(512, 8))
batch = (torch.randn(128, 64), torch.randn(128, 8))
"""


def rows(params: Params) -> dict[str, int | None]:
    tracked = track(params, fake=True)
    return {row.name: row.bytes for row in cuda_differences(params, tracked, allocator_models(tracked))}


def test_a_dropout_mask_has_one_byte_an_element():
    found = rows(Params(model="own", code=DROPOUT, optimizer="sgd", steps=1))
    assert found["dropout masks"] == -3 * 128 * 512
    assert found["workspace of cuBLAS"] == CUBLAS_BYTES == 8_519_680
    assert found["context"] is None


def test_without_dropout_there_is_no_mask():
    planted = DROPOUT.replace("nn.Dropout(0.5)", "nn.ReLU()")
    assert "dropout masks" not in rows(Params(model="own", code=planted, optimizer="sgd", steps=1))


def test_normalization_is_float32_under_autocast():
    code = DROPOUT.replace("nn.Dropout(0.5)", "nn.LayerNorm(512)").replace("128, ", "2048, ")
    params = Params(model="own", code=code, optimizer="sgd", steps=1, precision="bf16_autocast")
    assert rows(params)["float32 under autocast"] == 2 * 2048 * (512 + 2)  # the result, a mean and a deviation a row
    assert "float32 under autocast" not in rows(replace(params, precision="fp32"))


def test_blocks_are_rounded_and_nothing_is_said_of_a_run_on_cuda():
    params = Params(layers=1, width=32, batch=4, seq=16)
    tracked = track(params, fake=True)
    models = allocator_models(tracked)
    fixed = next(model for model in models if not model.expandable)
    found = {row.name: row.bytes for row in cuda_differences(params, tracked, models)}
    assert found["rounding to blocks"] == fixed.allocated_peak_bytes - fixed.requested_peak_bytes > 0
    object.__setattr__(params, "device", "cuda")
    assert cuda_differences(params, tracked, models) == ()
