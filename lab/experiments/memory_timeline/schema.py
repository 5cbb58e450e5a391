"""What the experiment takes and gives. All sizes in bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from lab.contract import Knob, Limits, ParamsError, check, knob
from lab.records.memory import MemoryResult
from lab.workloads.known_models import KNOWN
from lab.workloads.models import HEAD_WIDTH, VOCABULARY, Language
from lab.workloads.optimizers import OPTIMIZERS

GIB = 1 << 30
DEFAULT_PROGRAM = """class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))

model = nn.Sequential(*[Block(128) for _ in range(4)], nn.Linear(128, 10))
batch = (torch.randn(256, 128), torch.randint(0, 10, (256,)))
"""


@dataclass(frozen=True)
class Params:
    """A model and the way in which it is trained."""

    model: str = knob("gpt", choices=("mlp", "cnn", "gpt", "lstm", "own", "llama", "vit", "resnet50"))
    """The network. `own`: your program defines `model` and `batch`, and perhaps `loss`."""
    layers: int = knob(2, low=1, high=128)
    """Blocks of the network."""
    width: int = knob(128, low=8, high=16_384)
    """Features of a layer, channels of the CNN. From 128 on a multiple of 64 for gpt, whose heads are 64 wide."""
    batch: int = knob(8, low=1, high=65_536)
    """Samples of one optimizer step."""
    seq: int = knob(64, low=1, high=65_536)
    """Tokens of a sample, for gpt and lstm."""
    optimizer: str = knob("adamw", choices=tuple(OPTIMIZERS))
    """SGD keeps nothing, momentum one number for each parameter, Adam two."""
    optimizer_impl: str = knob("forloop", choices=("forloop", "foreach", "fused"))
    """One parameter after the other (default on the CPU), all in one list (default on CUDA), or one kernel."""
    precision: str = knob("fp32", choices=("fp32", "bf16_autocast", "fp16_autocast", "bf16"))
    """Autocast keeps fp32 parameters and casts for each operation; bf16 turns the model itself into bfloat16."""
    checkpoint: str = knob("none", choices=("none", "every", "all", "chosen"))
    """Keep only the inputs of checkpointed segments and run each again in backward."""
    blocks: str = knob("", max_bytes=1024)
    """Blocks that are checkpointed when checkpoint is `chosen`, counted from 0: `0-3 6`."""
    budget_bytes: int | None = knob(None, low=1 << 10, high=1 << 44, unit="bytes")
    """Peak that a checkpoint plan may have. None: halfway between the least and the most that it can be."""
    every: int = knob(1, low=1, high=128)
    """Blocks in a segment when checkpoint is `every`."""
    reentrant: bool = knob(False)
    """The older form of torch.utils.checkpoint."""
    accumulate: int = knob(1, low=1, high=64)
    """Split the batch into so many micro-batches and add their gradients."""
    one_backward: bool = knob(False)
    """Add the losses of the micro-batches and call backward once at the end."""
    zero_grad: str = knob("before_forward", choices=("before_forward", "before_backward", "after_step"))
    """Where gradients are cleared."""
    set_to_none: bool = knob(True)
    """Let go of the gradients instead of filling them with zeros."""
    retain_graph: bool = knob(False)
    """backward(retain_graph=True): the graph stays until the next loss takes its name."""
    steps: int = knob(2, low=1, high=8)
    """Optimizer steps. The first has no optimizer state yet, so its peak is another."""
    mode: str = knob("train", choices=("train", "no_grad", "inference_mode", "forgot"))
    """Train, or only the forward pass: with gradients switched off, or having forgotten to."""
    leak: str = knob("none", choices=("none", "loss", "loss_without_backward", "item"))
    """What is appended to a list in each step: nothing, the loss, the loss of a forward without backward, loss.item()."""
    predict: bool = knob(False)
    """Run on tensors without data: the same operations, the same bytes, no time and no memory."""
    card_bytes: int = knob(24 * GIB, low=1 << 20, high=1 << 40, unit="bytes")
    """Memory of the card that it should fit on."""
    cap_bytes: int | None = knob(None, low=1 << 10, high=1 << 40, unit="bytes")
    """Where the run out of memory stops. None: nine tenths of the peak."""
    code: str = knob(DEFAULT_PROGRAM, program=Limits(wall_s=40.0, memory_bytes=3 << 30), max_bytes=1 << 16)
    """A program that defines `model` and `batch`, and perhaps `loss(model, batch)`."""
    known_model: str | None = knob(None, choices=tuple(KNOWN))
    """A published model: sets the network, its sizes, vocabulary, heads and positions. Tokens and batch stay yours."""
    vocabulary: int = knob(VOCABULARY, low=2, high=1_000_000)
    """Different tokens, for gpt and llama: rows of the embedding, logits of the head."""
    positions: int | None = knob(None, low=1, high=1_000_000)
    """Rows of the table of learned positions, for gpt. None: as many as tokens."""
    heads: int | None = knob(None, low=1, high=1024)
    """Attention heads. None: 64 features each."""
    kv_heads: int | None = knob(None, low=1, high=1024)
    """Heads of keys and values: fewer than heads is grouped-query attention. None: as many as heads."""
    mlp_ratio: float = knob(4.0, low=0.25, high=16.0)
    """Inner width of the MLP over the width."""
    activation: str | None = knob(None, choices=("relu", "gelu", "silu", "swiglu"))
    """Of the MLP; swiglu has a gate. None: gelu, for llama swiglu."""
    tied: bool = knob(False)
    """The head reads the weight of the embedding, for gpt and llama."""
    ranks: int = knob(8, low=1, high=4096)
    """Devices that a model may be sharded over."""
    message: str = knob("", max_bytes=4096)
    """The message of an out-of-memory error of yours, pasted whole: its numbers are taken apart."""
    peak_only: bool = knob(False)
    """Only the chosen setting: nothing beside it, no changes tried, no clock."""
    seed: int = knob(0, low=0, high=2**31 - 1)
    """Seed of parameters and data."""
    device: str = knob("cpu", choices=("cpu", "cuda"))
    """Where it runs, and whose kernels a prediction is for."""

    def __post_init__(self) -> None:
        check(self)
        block_numbers(self.blocks)
        if self.known_model:
            self.resolved()  # its sizes are checked too
            return
        if self.model in ATTENTION:
            self._check_heads()
        if self.model == "gpt" and self.positions and self.positions < self.seq:
            raise ParamsError(f"positions = {self.positions} is less than seq = {self.seq}")
        if self.accumulate > self.batch and self.model != "own":
            raise ParamsError(f"accumulate = {self.accumulate} is more than batch = {self.batch}")

    def _check_heads(self) -> None:
        heads = self.heads or max(1, self.width // HEAD_WIDTH)
        if self.width % heads:
            multiple = heads if self.heads else HEAD_WIDTH
            raise ParamsError(f"width = {self.width} does not divide into {heads} heads; take a multiple of {multiple}")
        if self.kv_heads and heads % self.kv_heads:
            raise ParamsError(f"kv_heads = {self.kv_heads} does not divide heads = {heads}")
        if self.model == "llama" and self.width // heads % 2:
            raise ParamsError(f"a head of llama must have an even width, not {self.width // heads}")

    def resolved(self) -> Params:
        """With the sizes of the known model in place of the knobs that it sets."""
        if not self.known_model:
            return self
        sizes = {name: value for name, value in KNOWN[self.known_model].items() if name != "seq"}
        clear = {
            "positions": None,
            "heads": None,
            "kv_heads": None,
            "mlp_ratio": 4.0,
            "activation": None,
            "tied": False,
        }
        return replace(self, **(clear | sizes), known_model=None)

    @property
    def language(self) -> Language:
        """What the language models and ViT have beside depth and width."""
        activation = self.activation or ("swiglu" if self.model == "llama" else "gelu")
        sizes = (self.positions or 0, self.heads or 0, self.kv_heads or 0)
        return Language(self.vocabulary, *sizes, self.mlp_ratio, activation, self.tied)


def block_numbers(text: str) -> frozenset[int]:
    """``0-3 6`` -> 0, 1, 2, 3, 6. Raises ParamsError."""
    found: set[int] = set()
    for part in text.replace(",", " ").split():
        first, _, last = part.partition("-")
        if not (first.isdigit() and (last or first).isdigit()) or int(last or first) > 4096:
            raise ParamsError(f"blocks = {text!r}: {part!r} is no number and no range; write 0-3 6")
        found |= set(range(int(first), int(last or first) + 1))
    return frozenset(found)


def numbers_text(numbers: Iterable[int]) -> str:
    """0, 1, 2, 3, 6 -> ``0-3 6``."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return " ".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


ATTENTION = ("gpt", "llama", "vit")
"""Networks with heads."""
LANGUAGE = ("gpt", "llama")
_TRAINING = ("accumulate", "one_backward", "zero_grad", "set_to_none", "retain_graph", "checkpoint")


def offered(values: Mapping[str, Any], k: Knob) -> Knob | None:
    """The knob as it is offered beside these values: None where it changes nothing."""
    forward_only = values["mode"] != "train" or values["leak"] == "loss_without_backward"
    known = values["known_model"]
    model = KNOWN[known]["model"] if known else values["model"]
    hidden = {
        "code": model != "own",
        "model": bool(known),
        "known_model": model == "own",
        "layers": known or model in ("own", "resnet50"),
        "width": known or model in ("own", "resnet50"),
        "batch": model == "own",
        "seq": model not in ("gpt", "lstm", "llama"),
        "every": values["checkpoint"] != "every" or forward_only,
        "reentrant": values["checkpoint"] == "none" or forward_only,
        "blocks": values["checkpoint"] != "chosen" or forward_only,
        "budget_bytes": forward_only,
        "optimizer": forward_only,
        "optimizer_impl": forward_only,
        "vocabulary": known or model not in LANGUAGE,
        "tied": known or model not in LANGUAGE,
        "positions": known or model != "gpt",
        "kv_heads": known or model not in LANGUAGE,
        **dict.fromkeys(("heads", "mlp_ratio", "activation"), known or model not in ATTENTION),
        **dict.fromkeys(_TRAINING, forward_only),
    }
    if k.name == "one_backward" and values["accumulate"] == 1:
        return None
    return None if hidden.get(k.name) else k


Result = MemoryResult
