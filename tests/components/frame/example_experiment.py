"""An experiment without a program, for the tests of the frame: the norm of a product of ``depth`` equal factors."""

from __future__ import annotations

from dataclasses import dataclass

from lab.contract import Fault, Finding, Lesson, Report, check, knob

HOSTILE = "**x** :red[y] <img src=x onerror=alert(1)> $a$ :material/home: [l](http://h)"


@dataclass(frozen=True)
class Params:
    depth: int = knob(4, low=1, high=64)
    """Number of factors."""
    rate: float = knob(0.5, low=0.0, high=1e6)
    """One factor."""
    bias: bool = knob(True)
    """Adds one at the end."""
    device: str = knob("cpu", choices=("cpu", "cuda"))
    """Where it runs."""
    norm: str = knob("none at all", choices=("none at all", "layer", "batch", "group", "instance"))
    """Normalisation."""
    clip: float | None = knob(None, low=0.0)
    """Largest value."""
    name: str = knob("anna")
    """A text."""
    seed: int = knob(0, low=0, high=2**31 - 1)
    """Seed."""

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True)
class Result:
    product: float
    kept_bytes: int
    fault: Fault | None = None


def run(params: Params, report: Report) -> Result:
    return Result(params.rate**params.depth + params.bias, 8 * params.depth)


def explain(result: Result) -> tuple[Finding, ...]:
    return (
        Finding(
            level="surprise",
            title=HOSTILE,
            text=HOSTILE,
            evidence={"kept_bytes": 2048, "share": 0.25, "who": HOSTILE},
            line=3,
            repair=HOSTILE,
            change={"rate": 2.0, "depth": 9999, HOSTILE: 1, "name": HOSTILE, "norm": HOSTILE},
        ),
        Finding(level="fact", title="Second", text="It is second.", evidence={}),
    )


def headline(result: Result) -> dict[str, float]:
    return {"product": result.product, "kept_bytes": result.kept_bytes}


def _lesson(title: str, params: Params) -> Lesson:
    return Lesson(
        "N1",
        title,
        params,
        "Does the product grow?",
        {"grows": "A factor below one shrinks it.", "shrinks": "A factor above one lets it grow."},
        lambda result: "grows" if result.product > 2 else "shrinks",
        lambda result: result.product,
        "product",
        "the requirement",
        "the mechanism",
        "the proof",
        "the recovery",
    )


lessons = (_lesson("half, four deep", Params()), _lesson("Doubling, 30 deep", Params(depth=30, rate=2.0)))


def script(params: Params) -> str:
    return f"print({params.rate} ** {params.depth})\n"
