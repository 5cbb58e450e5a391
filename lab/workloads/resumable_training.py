"""A training with everything that carries state from one step to the next, and a checkpoint of it in named parts.

A micro-step is one forward and backward; the optimizer steps after every ``accumulate`` of them. State lives in the model
(BatchNorm's buffers too), the optimizer, its schedule, the gradient scaler, a moving average of the weights, the order of
the samples and the generator that drew it, torch's generator (dropout), Python's generator (augmentation), and the
gradients of an accumulation that is not finished.
"""

from __future__ import annotations

import contextlib
import io
import random
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

SAMPLES, FEATURES, CLASSES, HIDDEN, BATCH = 160, 8, 4, 32, 16
STEPS_OF_SCHEDULE = 40
PARTS = (
    *("model", "buffers", "optimizer", "scheduler", "scaler", "ema", "sampler"),
    *("torch_rng", "python_rng", "gradients"),
)
"""What a checkpoint holds, by name. ``buffers`` are those of the model; ``gradients`` with the count of micro-steps."""


def _data() -> tuple[torch.Tensor, torch.Tensor]:
    """Four clouds of points. Inputs (SAMPLES, FEATURES), classes (SAMPLES,)."""
    own = torch.Generator().manual_seed(5)
    classes = torch.randint(0, CLASSES, (SAMPLES,), generator=own)
    centres = torch.randn(CLASSES, FEATURES, generator=own) * 1.5
    return centres[classes] + torch.randn(SAMPLES, FEATURES, generator=own), classes


@contextlib.contextmanager
def generators_kept() -> Iterator[None]:
    """Whatever is drawn or seeded inside: outside, torch's and Python's generators go on as before."""
    cuda = torch.cuda.is_available() and torch.cuda.is_initialized()
    kept = torch.get_rng_state(), random.getstate(), torch.cuda.get_rng_state_all() if cuda else []
    try:
        yield
    finally:
        torch.set_rng_state(kept[0])
        random.setstate(kept[1])
        if cuda:
            torch.cuda.set_rng_state_all(kept[2])


class TrainingRun:
    """The training. Building it seeds torch's and Python's generators with ``seed``."""

    def __init__(self, *, optimizer: str, accumulate: int, dropout: float, seed: int, device: str = "cpu") -> None:
        torch.manual_seed(seed)
        random.seed(seed)
        self.device, self.accumulate = device, accumulate
        self.model = nn.Sequential(
            *(nn.Linear(FEATURES, HIDDEN), nn.BatchNorm1d(HIDDEN), nn.ReLU(), nn.Dropout(dropout)),
            nn.Linear(HIDDEN, CLASSES),
        ).to(device)
        parameters = self.model.parameters()
        if optimizer == "AdamW":
            self.optimizer: torch.optim.Optimizer = torch.optim.AdamW(parameters, lr=2e-2, weight_decay=0.1)
        else:
            self.optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, T_max=STEPS_OF_SCHEDULE)
        self.scaler = torch.amp.GradScaler(device, init_scale=2.0**14, growth_interval=10)
        average = torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
        self.ema = torch.optim.swa_utils.AveragedModel(self.model, multi_avg_fn=average)
        self.inputs, self.classes = (part.to(device) for part in _data())
        self.sampler_rng = torch.Generator().manual_seed(seed + 11)
        self.order = torch.randperm(SAMPLES, generator=self.sampler_rng).tolist()
        self.position, self.micro = 0, 0

    def _batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        if self.position + BATCH > SAMPLES:
            self.order = torch.randperm(SAMPLES, generator=self.sampler_rng).tolist()
            self.position = 0
        chosen = self.order[self.position : self.position + BATCH]
        self.position += BATCH
        inputs = self.inputs[chosen]
        if random.random() < 0.5:  # augmentation
            inputs = inputs + 0.05 * random.random()
        return inputs, self.classes[chosen]

    def step(self) -> float:
        """One micro-step; its loss, before the weights move."""
        inputs, classes = self._batch()
        loss = F.cross_entropy(self.model(inputs), classes)
        self.scaler.scale(loss / self.accumulate).backward()
        self.micro += 1
        if self.micro % self.accumulate == 0:
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.optimizer.zero_grad()
            self.scheduler.step()
            self.ema.update_parameters(self.model)
        return loss.item()

    @property
    def lr(self) -> float:
        """Learning rate in use."""
        return float(self.optimizer.param_groups[0]["lr"])

    def evaluate(self) -> tuple[float, float]:
        """Loss over all samples in eval mode: of the model, of the average of its weights."""
        return _loss_in_eval(self.model, self), _loss_in_eval(self.ema, self)

    def weights(self) -> torch.Tensor:
        """All parameters in one vector."""
        return torch.cat([p.detach().flatten() for p in self.model.parameters()])

    def parts(self) -> dict[str, Any]:
        """Everything by the names of ``PARTS``. Alive: it changes with the training until it is written."""
        parameters = list(self.model.parameters())
        buffers = {name for name, _ in self.model.named_buffers()}
        state = self.model.state_dict()
        gradients = [None if p.grad is None else p.grad.clone() for p in parameters]
        return {
            "model": {k: v for k, v in state.items() if k not in buffers},
            "buffers": {k: v for k, v in state.items() if k in buffers},
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "scaler": self.scaler.state_dict(),
            "ema": self.ema.state_dict(),
            "sampler": {"rng": self.sampler_rng.get_state(), "order": self.order, "position": self.position},
            "torch_rng": _device_generator_state(self.device),
            "python_rng": random.getstate(),
            "gradients": {"micro": self.micro, "grads": gradients},
        }

    def save(self) -> bytes:
        """The file."""
        return file_of(self.parts())

    def load(self, file: bytes, leave_out: tuple[str, ...] = ()) -> None:
        """Take every part of ``file`` that is not left out; generators last, for building a model draws from them."""
        saved = torch.load(io.BytesIO(file), map_location="cpu", weights_only=True)
        load: dict[str, Callable[[Any], Any]] = {
            "model": lambda part: self.model.load_state_dict(part, strict=False),
            "buffers": lambda part: self.model.load_state_dict(part, strict=False),
            "optimizer": self.optimizer.load_state_dict,
            "scheduler": self.scheduler.load_state_dict,
            "scaler": self.scaler.load_state_dict,
            "ema": self.ema.load_state_dict,
            "sampler": self._load_sampler,
            "gradients": self._load_gradients,
            "python_rng": random.setstate,
            "torch_rng": lambda part: _set_device_generator(self.device, part),
        }
        if "gradients" in leave_out:  # what is left of the accumulation is taken up where it began
            self.micro = saved["gradients"]["micro"] // self.accumulate * self.accumulate
        for name, take in load.items():
            if name not in leave_out:
                take(saved[name])

    def _load_sampler(self, part: dict[str, Any]) -> None:
        self.sampler_rng.set_state(part["rng"])
        self.order, self.position = part["order"], part["position"]

    def _load_gradients(self, part: dict[str, Any]) -> None:
        self.micro = part["micro"]
        for parameter, gradient in zip(self.model.parameters(), part["grads"], strict=True):
            parameter.grad = None if gradient is None else gradient.to(self.device)


def file_of(obj: Any) -> bytes:
    """What ``torch.save`` writes for ``obj``."""
    file = io.BytesIO()
    torch.save(obj, file)
    return file.getvalue()


def _loss_in_eval(model: nn.Module, run: TrainingRun) -> float:
    model.eval()
    with torch.no_grad():
        loss = F.cross_entropy(model(run.inputs), run.classes).item()
    model.train()
    return loss


def _device_generator_state(device: str) -> Any:
    """Of the host, and of the GPU that the training runs on."""
    return {"cpu": torch.get_rng_state(), **({"cuda": torch.cuda.get_rng_state()} if device == "cuda" else {})}


def _set_device_generator(device: str, state: dict[str, Any]) -> None:
    torch.set_rng_state(state["cpu"])
    if device == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"])
