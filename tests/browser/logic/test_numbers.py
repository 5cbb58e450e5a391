"""Numbers to words and ticks, as every figure in the browser writes them."""

from __future__ import annotations

import itertools
import random

import pytest

from lab.quantities import bytes_text
from tests.browser.logic.conftest import Call

BASE = "components/kit/base.js"


@pytest.mark.parametrize("count", [0, 1, 1023, 1024, 1536, 10**6, 2**20, 2**30 * 3 // 2, 2**40, 2**52, -5000])
def test_bytes_read_as_they_do_in_python(call: Call, count: int) -> None:
    assert call(BASE, "m.exactText(v[0])", count) == bytes_text(count)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("m.scaledText(1536, ['B', 'KiB'], 1024)", "1.50 KiB"),
        ("m.scaledText(-1024 * 1024, ['B', 'KiB', 'MiB'], 1024)", "−1.00 MiB"),
        ("m.scaledText(5 * 1024 ** 3, ['B', 'KiB'], 1024)", "5242880 KiB"),
        ("m.scaledText(999, ['', 'k', 'M'], 1000)", "999 "),
        ("m.scaledText(12.5, ['', 'k', 'M'], 1000)", "12.5 "),
        ("m.scaledText(123456, ['', 'k', 'M'], 1000)", "123 k"),
        ("m.signedBytes(-1536)", "−1.5 KiB"),
        ("m.signedBytes(200 * 1024)", "200 KiB"),
        ("m.signedBytes(0)", "0 B"),
        ("m.secondsText(0)", "0"),
        ("m.secondsText(0.00153)", "1.53 ms"),
        ("m.secondsText(2.5e-8)", "0.03 µs"),
        ("m.secondsText(123.4)", "123 s"),
        ("m.timeText(1.5e-3)", "1.50 ms"),
        ("m.timeText(2e-3)", "2 ms"),
        ("m.timeText(2e-3, 1e-6)", "2000 µs"),
        ("m.timeText(0)", "0 ns"),
        ("m.timeText(40e-9)", "40 ns"),
        ("m.numberText(null)", "None"),
        ("m.numberText('NaN')", "NaN"),
        ("m.numberText('-Infinity')", "−∞"),
        ("m.numberText(-0.000123)", "−1.23e−4"),
        ("m.numberText(12345)", "1.23e+4"),
        ("m.numberText(3.14159)", "3.142"),
        ("m.numberText(0)", "0"),
        ("m.byteTickText(0, 1)", "0"),
        ("m.byteTickText(1.5 * 1024, 4096)", "1.5 KiB"),
        ("m.byteTickText(512, 4096)", "0.5 KiB"),
    ],
)
def test_a_number_in_words(call: Call, code: str, text: str) -> None:
    assert call(BASE, code) == text


def test_ticks_are_round_and_cover_the_range(call: Call) -> None:
    rng = random.Random(0)
    for _ in range(200):
        start = rng.uniform(-5, 5) * 10 ** rng.randint(-6, 3)
        width, most = 10 ** rng.uniform(-7, 3), rng.randint(2, 12)
        made = call(BASE, "m.ticks(v[0], v[1], v[2])", start, start + width, most)
        step, found = made["step"], made["found"]
        assert width / most <= step * 1.0000001 <= 10.0000001 * width / most
        assert float(f"{step:.6e}".split("e")[0]) in (1, 2, 5)
        assert len(found) <= most + 1
        assert all(b - a == pytest.approx(step, rel=1e-3) for a, b in itertools.pairwise(found))
        assert all(start - 1e-9 * abs(start) <= at <= start + width + 1e-9 * abs(start) for at in found)


@pytest.mark.parametrize("most", [1, 900, 1024, 5000, 3 * 2**20, 7.7 * 2**30])
def test_byte_ticks_are_round_in_their_unit(call: Call, most: float) -> None:
    found = call(BASE, "m.byteTicks(v[0])", most)
    assert found[0] == 0
    assert 3 <= len(found) <= 6
    assert found[-1] <= most * 1.0001 < found[-1] + found[1]
