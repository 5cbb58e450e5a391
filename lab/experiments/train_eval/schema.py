"""What the experiment takes and gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from lab.contract import Knob, Limits, ParamsError, check, knob
from lab.experiments.train_eval.studies.batchnorm_freezing import TREATMENTS
from lab.records.modes import ModesResult as Result

__all__ = ["MODULES", "STUDIES", "USED", "VIEWS", "Params", "Result", "offered", "settled"]

VIEWS = ("dropout", "batchnorm", "switches", "scan")
STUDIES = {
    "dropout": ("masks", "convergence", "MC dropout", "who listens"),
    "batchnorm": ("batch by batch", "batch size", "serving", "other norms", "freezing"),
    "switches": ("both switches",),
    "scan": ("modules", "forgotten eval"),
}
"""Figures of each view; the first is its own."""
MODULES = {
    "dropout": ("Dropout", "Dropout1d", "Dropout2d", "AlphaDropout", "F.dropout"),
    "batchnorm": ("BatchNorm1d", "BatchNorm2d"),
}
MOST_ELEMENTS = 50_000_000
"""Elements that pass through a module in one run: about a second on one core."""


@dataclass(frozen=True)
class Params:
    """What is run. Each view uses some of the knobs."""

    view: str = knob("dropout", choices=VIEWS)
    """What to look at."""
    study: str = knob("masks", choices=tuple(study for studies in STUDIES.values() for study in studies))
    """The figure. One of another view counts as the first of this view."""
    module: str = knob("Dropout", choices=(*MODULES["dropout"], *MODULES["batchnorm"]))
    """The layer. One of another view counts as the first of this view."""
    p: float = knob(0.5, low=0.0, high=1.0, step=0.05)
    """Probability that a unit is dropped."""
    passes: int = knob(200, low=1, high=2000)
    """Forward passes over the same input."""
    inputs: str = knob("ones", choices=("ones", "normal", "ramp"))
    """Input of the dropout layer: all ones, a standard normal, or numbers rising from 0 to 1."""
    same_mask: bool = knob(False)
    """Set the random generator back to the seed before every pass."""
    batch: int = knob(16, low=1, high=256)
    """Samples in a batch."""
    channels: int = knob(8, low=1, high=64)
    """Channels, or features."""
    size: int = knob(4, low=1, high=16)
    """Height and width of an image (2d layers), length of a sequence (Dropout1d)."""
    batches: int = knob(30, low=1, high=300)
    """Batches of training before the statistics are looked at."""
    momentum: float | None = knob(0.1, low=0.0, high=1.0)
    """Weight of the new batch in the running statistics. None: all batches weigh the same."""
    eps: float = knob(1e-5, low=1e-15, high=1.0)
    """Added to the variance before the square root; torch refuses 0 in train mode."""
    affine: bool = knob(True)
    """Learnable weight and bias; they start at 1 and 0."""
    track_running_stats: bool = knob(True)
    """Keep running statistics. Without them eval mode uses the batch as well."""
    dtype: str = knob("float64", choices=("float64", "float32"))
    """Number format of the BatchNorm layer."""
    shift: float = knob(1.0, low=-10.0, high=10.0)
    """Added to the data after training: serving data = scale · data + shift."""
    scale: float = knob(1.0, low=0.1, high=10.0)
    """Factor of the data after training."""
    treatment: str = knob("requires_grad=False", choices=tuple(TREATMENTS))
    """What is done to the trained layer."""
    mode: str = knob("eval", choices=("train", "eval"))
    """The row of the matrix to look at."""
    gradients: str = knob("grad", choices=("grad", "no_grad", "inference_mode"))
    """The column of the matrix to look at."""
    model: str = knob("classifier", choices=("classifier", "convnet", "transformer", "own"))
    """The model to scan; own is the program below."""
    code: str = knob("", program=Limits(wall_s=20.0, memory_bytes=2 << 30), max_bytes=1 << 16)
    """Your own model: a program that defines `model` and `batch`."""
    seed: int = knob(0, low=0, high=2**31 - 1)
    """Seed of weights, data and masks."""
    device: str = knob("cpu", choices=("cpu", "cuda"))
    """Where the modules run."""

    def __post_init__(self) -> None:
        check(self)
        if self.view in MODULES and self.elements > MOST_ELEMENTS:
            times = "passes" if self.view == "dropout" else "batches"
            raise ParamsError(
                f"batch × channels × positions × {times} = {self.elements:,} elements; the limit is {MOST_ELEMENTS:,}. "
                f"Lower {times} or size."
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one input of the layer."""
        positions = {"Dropout1d": (self.size,), "Dropout2d": (self.size,) * 2, "BatchNorm2d": (self.size,) * 2}
        return (self.batch, self.channels, *positions.get(self.settled().module, ()))

    @property
    def elements(self) -> int:
        """Elements through the layer in one run."""
        count = self.passes if self.view == "dropout" else self.batches
        for extent in self.shape:
            count *= extent
        return count

    def settled(self) -> Params:
        """With a study and a module that belong to the view."""
        return _changed(self, {name: settled(self.view, name, getattr(self, name)) for name in ("study", "module")})


def _changed(params: Params, values: dict[str, Any]) -> Params:
    if all(getattr(params, name) == value for name, value in values.items()):
        return params
    return replace(params, **values)


def settled(view: str, name: str, value: str) -> str:
    """``value`` of the knob ``study`` or ``module`` if it belongs to the view, else the view's first."""
    offers = {"study": STUDIES, "module": MODULES}[name].get(view, (value,))
    return value if value in offers else offers[0]


_SHAPE = ("batch", "channels")
_LAYER = ("eps", "affine", "track_running_stats", "dtype")
USED: dict[str, tuple[str, ...]] = {
    "masks": ("module", "p", "inputs", "passes", *_SHAPE, "size", "same_mask"),
    "convergence": ("module", "p", "passes", "inputs", *_SHAPE, "size", "same_mask"),
    "MC dropout": ("p", "passes"),
    "who listens": ("p",),
    "batch by batch": ("module", "momentum", *_SHAPE, "batches", "size", *_LAYER),
    "batch size": ("module", *_SHAPE, "size", *_LAYER),
    "serving": ("module", "shift", "scale", "momentum", *_SHAPE, "batches", "size", *_LAYER),
    "other norms": (),
    "freezing": ("treatment", *_SHAPE),
    "both switches": ("mode", "gradients", "p", "batch"),
    "modules": ("model", "p", "batch"),
    "forgotten eval": ("p",),
}
"""Knobs that matter for a study, most important first; seed and device always do."""


def offered(values: Mapping[str, Any], k: Knob) -> Knob | None:
    """The knob as it is offered beside these values: None where it does not matter, fewer choices where they do not fit."""
    view, study, module = (
        values["view"],
        *(settled(values["view"], name, values[name]) for name in ("study", "module")),
    )
    if k.name == "study":
        return replace(k, choices=STUDIES[view]) if len(STUDIES[view]) > 1 else None
    matters = ("view", "seed", "device", *USED[study], *(("code",) if values["model"] == "own" else ()))
    idle = {
        "size": not module.endswith(("2d", "Dropout1d")),
        "code": study != "modules",
        "batch": study == "modules" and values["model"] in ("classifier", "own"),
        "p": study == "modules" and values["model"] == "own",
    }
    if k.name not in matters or idle.get(k.name):
        return None
    return replace(k, choices=MODULES[view]) if k.name == "module" else k
