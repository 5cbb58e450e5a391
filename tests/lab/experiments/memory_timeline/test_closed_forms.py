"""Totals of known models, activations of a published formula, ranks and changes: each against arithmetic by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lab.experiments.memory_timeline import fitting
from lab.experiments.memory_timeline.depth import extrapolated
from lab.experiments.memory_timeline.schema import Params
from lab.experiments.memory_timeline.subject import build
from lab.experiments.memory_timeline.tracking import Tracked, track
from lab.torch_private import FakeMode
from lab.workloads.known_models import KNOWN


def tensors_and_numbers(params: Params) -> tuple[int, int]:
    with FakeMode():
        parameters = list(build(params).training.task.model.parameters())
    return len(parameters), sum(p.numel() for p in parameters)


def state_at_peak(params: Params) -> dict[str, int]:
    """Categories at the peak, from few blocks where there are many."""
    if found := extrapolated(params):
        return found.categories
    tracked = track(params, fake=True)
    return tracked.reading.categories(max(range(len(tracked.reading.totals)), key=tracked.reading.totals.__getitem__))


@pytest.mark.parametrize("name", KNOWN)
def test_parameters_and_optimizer_state_of_known_models(name):
    """fp32 with fused Adam in the second step: 4 bytes a parameter, 8 of state and 4 a tensor for its step."""
    params = Params(known_model=name, batch=1, seq=128, steps=2, predict=True, optimizer_impl="fused").resolved()
    tensors, numbers = tensors_and_numbers(params)
    found = state_at_peak(params)
    assert found["parameters"] == 4 * numbers
    assert found["optimizer_state"] == 8 * numbers + 4 * tensors
    assert found["gradients"] <= 4 * numbers


def test_a_planted_step_counter_of_8_bytes_is_caught():
    params = Params(known_model="gpt2", batch=1, seq=64, predict=True, optimizer_impl="fused").resolved()
    tensors, numbers = tensors_and_numbers(params)
    assert state_at_peak(params)["optimizer_state"] != 8 * numbers + 8 * tensors


KORTHIKANTI = """
WIDTH, HEADS, TOKENS, BATCH, LAYERS = 64, 4, 32, 8, {layers}

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.drop = nn.Dropout({p})

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (y.view(b, t, HEADS, -1).transpose(1, 2) for y in self.qkv(self.norm1(x)).split(d, -1))
        weights = self.drop((q @ k.transpose(-1, -2) / 4).softmax(-1))
        x = x + self.drop(self.out((weights @ v).transpose(1, 2).reshape(b, t, d)))
        return x + self.drop(self.down(F.gelu(self.up(self.norm2(x)))))

model = nn.Sequential(*[Block() for _ in range(LAYERS)], nn.Linear(WIDTH, 2))
batch = (torch.randn(BATCH, TOKENS, WIDTH), torch.randint(2, (BATCH, TOKENS)))
"""


def per_layer(p: float) -> int:
    """Bytes that one more block saves, in bfloat16."""
    saved = [
        track(Params(model="own", code=KORTHIKANTI.format(layers=n, p=p), precision="bf16", optimizer="sgd", steps=1), fake=True).saved_bytes
        for n in (2, 3)
    ]  # fmt: skip
    return saved[1] - saved[0]


def test_activations_of_a_layer_are_those_of_the_published_formula():
    """Korthikanti et al. 2022: s·b·h·(34 + 5·a·s/h) bytes at 2 bytes a number with masks of 1 byte.

    Two differences, both known: the CPU keeps masks of 2 bytes here, and each LayerNorm also a mean and a deviation a token.
    """
    s, b, h, a = 32, 8, 64, 4
    published = s * b * h * 34 + 5 * a * s * s * b
    masks, statistics = s * b * h * 2 + a * s * s * b, 2 * 2 * 2 * s * b
    assert per_layer(0.1) == published + masks + statistics


def test_without_dropout_the_masks_and_their_results_are_gone():
    """A planted change of the model: two masks of s·b·h, and of the weights mask and product; the formula no longer holds."""
    s, b, h, a = 32, 8, 64, 4
    published = s * b * h * 34 + 5 * a * s * s * b
    assert per_layer(0.0) < published


def sizes(tracked: Tracked, module: str, phase: str = "forward") -> list[int]:
    return [s.bytes for s in tracked.reading.storages if s.module.endswith(module) and s.phase == phase and s.step == 0]


def test_grouped_queries_make_narrow_keys_and_values_that_are_repeated_for_attention():
    """k and v leave their layers with kv_heads · d numbers a token; attention keeps them repeated to all heads."""
    shape: dict[str, Any] = {"layers": 1, "width": 64, "heads": 4, "batch": 2, "seq": 16, "vocabulary": 50}
    params = Params(model="llama", optimizer="sgd", steps=1, **shape)
    full, grouped = (track(replace(params, kv_heads=kv), fake=True) for kv in (4, 1))
    numbers = 2 * 16 * 64
    for layer in (".k", ".v"):
        assert sizes(full, layer)[0] == 4 * numbers
        assert sizes(grouped, layer)[0] == 4 * numbers // 4
    kept = [
        t.storage_bytes
        for t in grouped.saved
        if "ScaledDotProduct" in t.operation and t.slot in ("query", "key", "value")
    ]
    assert kept == [4 * numbers] * 3
    assert full.parameters - grouped.parameters == 2 * 64 * 48


def test_the_shares_of_ranks_by_hand():
    """One linear layer, batch 1, fused Adam: state, gradient and weight are all there is at the end of the second backward."""
    code = "model = nn.Linear(1000, 1000, bias=False)\nbatch = torch.randn(1, 1000)\n"
    params = Params(model="own", code=code, optimizer="adam", optimizer_impl="fused", ranks=4, card_bytes=1 << 30)
    tracked = track(params, fake=True)
    weight = 4_000_000
    rest = tracked.peak_bytes - 4 * weight  # the input, the loss, a counter
    assert 0 < rest < 0.01 * weight
    one, two, three = fitting.shards(params, tracked)
    assert abs(one.peak_bytes - (2 * weight + 2 * weight // 4) - rest) <= 4
    assert abs(two.peak_bytes - (weight + 3 * weight // 4) - rest) <= 4
    assert abs(three.peak_bytes - (4 * weight // 4 + 3 * weight // 4) - rest) <= 4
    assert (one.sent_bytes, three.sent_bytes) == (2 * weight * 3 // 4, 3 * weight * 3 // 4)


def test_sgd_in_place_of_adam_saves_its_state():
    code = "model = nn.Linear(1000, 1000, bias=False)\nbatch = torch.randn(1, 1000)\n"
    params = Params(model="own", code=code, optimizer="adam", optimizer_impl="fused")
    adam, sgd = (track(replace(params, optimizer=name), fake=True).peak_bytes for name in ("adam", "sgd"))
    assert adam - sgd == 2 * 4_000_000 + 4
