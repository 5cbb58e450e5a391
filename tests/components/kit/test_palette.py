"""Colours are told apart by normal, protanope and deuteranope eyes, and texts can be read on their fills."""

from __future__ import annotations

import itertools
import math
from typing import get_args

import pytest

from components.kit.palette import GRAPH, HEALTH, MEMORY, SIGN, STEP, Theme, css_variables

Triple = tuple[float, float, float]
THEMES = get_args(Theme)
APART, LIGHTNESS_APART, CONTRAST = 15.0, 5.0, 4.5
# Machado, Oliveira, Fernandes 2009, "A Physiologically-based Model for Simulation of Color Vision Deficiency", severity 1.0
EYES: dict[str, tuple[Triple, Triple, Triple]] = {
    "normal": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanope": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranope": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
}


def linear(colour: str) -> Triple:
    """Linear sRGB of ``#rrggbb``."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return r, g, b


def luminance(colour: str) -> float:
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear(colour), strict=True))


def contrast(one: str, other: str) -> float:
    """WCAG 2 contrast ratio."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def lab(rgb: Triple) -> Triple:
    """CIELAB, D65, of linear sRGB."""
    r, g, b = (min(1.0, max(0.0, c)) for c in rgb)
    x = (0.4124564 * r + 0.3575761 * g + 0.1804375 * b) / 0.95047
    y = 0.2126729 * r + 0.7151522 * g + 0.0721750 * b
    z = (0.0193339 * r + 0.1191920 * g + 0.9503041 * b) / 1.08883
    fx, fy, fz = (t ** (1 / 3) if t > 216 / 24389 else (24389 / 27 * t + 16) / 116 for t in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


def seen(colour: str, eye: str) -> Triple:
    rgb = linear(colour)
    x, y, z = (sum(m * c for m, c in zip(row, rgb, strict=True)) for row in EYES[eye])
    return lab((x, y, z))


def ciede2000(one: Triple, other: Triple) -> float:
    """Sharma, Wu, Dalal 2005."""
    (l1, a1, b1), (l2, a2, b2) = one, other
    mean = (math.hypot(a1, b1) + math.hypot(a2, b2)) / 2
    g = 0.5 * (1 - math.sqrt(mean**7 / (mean**7 + 25**7)))
    a1, a2 = a1 * (1 + g), a2 * (1 + g)
    c1, c2 = math.hypot(a1, b1), math.hypot(a2, b2)
    h1, h2 = math.degrees(math.atan2(b1, a1)) % 360, math.degrees(math.atan2(b2, a2)) % 360
    turn = 0.0 if not c1 * c2 else (h2 - h1 + 180) % 360 - 180
    dh = 2 * math.sqrt(c1 * c2) * math.sin(math.radians(turn / 2))
    h = h1 + h2 if not c1 * c2 else (h1 + turn / 2) % 360
    lightness, chroma = (l1 + l2) / 2, (c1 + c2) / 2
    t = (
        sum(
            k * math.cos(math.radians(m * h + s))
            for k, m, s in ((-0.17, 1, -30), (0.24, 2, 0), (0.32, 3, 6), (-0.20, 4, -63))
        )
        + 1
    )
    sl = 1 + 0.015 * (lightness - 50) ** 2 / math.sqrt(20 + (lightness - 50) ** 2)
    sc, sh = 1 + 0.045 * chroma, 1 + 0.015 * chroma * t
    bend = (
        math.sin(math.radians(60 * math.exp(-(((h - 275) / 25) ** 2)))) * 2 * math.sqrt(chroma**7 / (chroma**7 + 25**7))
    )
    dl, dc, dh = (l2 - l1) / sl, (c2 - c1) / sc, dh / sh
    return math.sqrt(dl * dl + dc * dc + dh * dh - bend * dc * dh)


def too_close(colours: dict[str, str]) -> list[str]:
    """Neighbours that some eye cannot tell apart, or that are equally light."""
    found = []
    for (a, one), (b, other) in itertools.pairwise(colours.items()):
        for eye in EYES:
            distance = ciede2000(seen(one, eye), seen(other, eye))
            if distance < APART:
                found.append(f"{a} and {b} are {distance:.1f} apart to a {eye} eye")
        if abs(seen(one, "normal")[0] - seen(other, "normal")[0]) < LIGHTNESS_APART:
            found.append(f"{a} and {b} are equally light")
    return found


@pytest.mark.parametrize(
    ("one", "other", "distance"),
    [  # from the supplementary data of Sharma, Wu, Dalal 2005
        ((50, 2.6772, -79.7751), (50, 0, -82.7485), 2.0425),
        ((50, 2.5, 0), (61, -5, 29), 22.8977),
        ((50, 2.5, 0), (56, -27, -3), 31.9030),
        ((60.2574, -34.0099, 36.2677), (60.4626, -34.1751, 39.4387), 1.2644),
        ((22.7233, 20.0904, -46.6940), (23.0331, 14.9730, -42.5619), 2.0373),
        ((2.0776, 0.0795, -1.1350), (0.9033, -0.0636, -0.5514), 0.9082),
    ],
)
def test_the_distance_is_the_published_one(one: Triple, other: Triple, distance: float) -> None:
    assert ciede2000(one, other) == pytest.approx(distance, abs=1e-4)


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("palette", [MEMORY, SIGN, HEALTH, STEP], ids=["memory", "sign", "health", "step"])
def test_neighbours_are_told_apart(palette: dict[Theme, dict[str, str]], theme: Theme) -> None:
    colours = {kind: colour for kind, colour in palette[theme].items() if kind != "unseen"}
    assert too_close(colours) == []


def test_the_check_sees_red_beside_green_and_equal_lightness() -> None:
    assert any("deuteranope" in fault for fault in too_close({"red": "#b4553c", "green": "#7d7a2c"}))
    assert any("equally light" in fault for fault in too_close({"blue": "#3b82f6", "orange": "#d97706"}))


@pytest.mark.parametrize("theme", THEMES)
def test_a_label_can_be_read_on_every_fill(theme: Theme) -> None:
    for palette in (MEMORY, SIGN, HEALTH, STEP):
        for colour in palette[theme].values():
            assert max(contrast(colour, "#111827"), contrast(colour, "#ffffff")) >= CONTRAST
    graph = GRAPH[theme]
    for fill, ink in itertools.product(
        (n for n in graph if n.endswith("-fill")), ("ink", "muted", "gradient", "fault")
    ):
        assert contrast(graph[fill], graph[ink]) >= CONTRAST, (fill, ink)


@pytest.mark.parametrize("theme", THEMES)
def test_leaf_function_and_output_are_told_apart(theme: Theme) -> None:
    lines = {kind: GRAPH[theme][f"{kind}-line"] for kind in ("leaf", "function", "output")}
    for one, other in itertools.combinations(lines.values(), 2):
        assert min(ciede2000(seen(one, eye), seen(other, eye)) for eye in EYES) >= APART


def test_both_themes_name_the_same_colours() -> None:
    for palette in (MEMORY, SIGN, HEALTH, STEP, GRAPH):
        assert list(palette["light"]) == list(palette["dark"])
    assert "--leaf-fill:#dbeafe;" in css_variables("light")
