"""Small models of many kinds: name -> a function that makes the model, its inputs and the loss of one step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from lab.workloads.training_step import MicroBatches, Recipe
from tests.lab.instruments.memory.memory_tracked import built

ZOO: dict[str, Callable[[], tuple[MicroBatches, Recipe]]] = {}
SGD = Recipe("sgd")


def _of_the_lab(name: str, model: str, recipe: Recipe = SGD, **size: Any) -> None:
    ZOO[name] = lambda: (built(model, **size), recipe)


def _model(make: Callable[[], tuple[nn.Module, list[torch.Tensor], Callable[[], torch.Tensor]]]) -> None:
    def task() -> tuple[MicroBatches, Recipe]:
        model, inputs, loss = make()
        return MicroBatches(model, {str(number): tensor for number, tensor in enumerate(inputs)}, [loss]), SGD

    ZOO[make.__name__] = task


def _on_features(name: str, of: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
    """A loss that reads the output of one linear layer in its own way."""

    def task() -> tuple[MicroBatches, Recipe]:
        model, x, rows = nn.Linear(64, 512), torch.randn(128, 64), torch.arange(128) % 90
        return MicroBatches(model, {"x": x, "rows": rows}, [lambda: of(model(x), rows)]), SGD

    ZOO[name] = task


_of_the_lab("mlp with Adam", "mlp", Recipe("adam"))
_of_the_lab("gradients are accumulated", "mlp", batch=32, chunks=4)
_of_the_lab("gpt", "gpt")
_of_the_lab("gpt under autocast", "gpt", Recipe("adamw", precision="bf16_autocast"))
_of_the_lab("gpt with checkpointing", "gpt", every=1)
_of_the_lab("gpt in bfloat16, foreach", "gpt", Recipe("adam", "foreach", precision="bf16"))
_of_the_lab("gpt in two micro-batches", "gpt", chunks=2)
_of_the_lab("gpt, graph retained", "gpt", Recipe("sgd", retain_graph=True))
_of_the_lab("gpt without gradients", "gpt", Recipe(mode="no_grad"))
_of_the_lab("cnn", "cnn", width=16)
_of_the_lab("lstm of oneDNN", "lstm")
_of_the_lab("fused momentum", "mlp", Recipe("momentum", "fused"))


@_model
def many_heads():
    body, heads = nn.Linear(64, 2048), nn.ModuleList([nn.Linear(2048, 1) for _ in range(8)])
    x = torch.randn(128, 64)

    def loss():
        features = torch.tanh(body(x))
        return torch.cat([head(features) for head in heads], 1).square().mean()

    return nn.ModuleList([body, heads]), [x], loss


@_model
def loop_over_time():
    parts = nn.ModuleDict({"emb": nn.Embedding(100, 64), "cell": nn.RNNCell(64, 64), "out": nn.Linear(64, 5)})
    ids, y = torch.randint(0, 100, (32, 12)), torch.randint(0, 5, (32,))

    def loss():
        x, h = parts["emb"](ids), None
        for t in range(ids.shape[1]):
            h = parts["cell"](x[:, t], h)
        return F.cross_entropy(parts["out"](h), y)

    return parts, [ids, y], loss


@_model
def tied_embedding():
    emb, linear, ids = nn.Embedding(500, 64), nn.Linear(64, 64), torch.randint(0, 500, (8, 16))

    def loss():
        logits = torch.tanh(linear(emb(ids))) @ emb.weight.t()
        return F.cross_entropy(logits.flatten(0, 1), ids.flatten())

    return nn.ModuleList([emb, linear]), [ids], loss


@_model
def tied_layers():
    layer, x = nn.Linear(256, 256), torch.randn(16, 256)
    model = nn.Sequential(layer, nn.ReLU(), layer, nn.ReLU(), layer)
    return model, [x], lambda: model(x).square().mean()


@_model
def residual_convolutions():
    blocks = nn.ModuleList([nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16)) for _ in range(2)])
    stem, x = nn.Conv2d(3, 16, 3, padding=1), torch.randn(4, 3, 16, 16)

    def loss():
        h = stem(x)
        for block in blocks:
            h = F.relu(h + block(h))
        return h.square().mean()

    return nn.ModuleList([stem, blocks]), [x], loss


@_model
def residual_linears():
    layers, x = nn.ModuleList([nn.Linear(64, 64) for _ in range(4)]), torch.randn(256, 64)

    def loss():
        h = x
        for layer in layers:
            h = h + torch.relu(layer(h))
        return h.square().mean()

    return layers, [x], loss


@_model
def sparse_gradient():
    bag, ids, y = (
        nn.EmbeddingBag(5000, 16, mode="sum", sparse=True),
        torch.randint(0, 5000, (32, 10)),
        torch.ones(32, 16),
    )
    return bag, [ids, y], lambda: F.mse_loss(bag(ids), y)


@_model
def sparse_gradient_twice():
    emb, ids = nn.Embedding(5000, 16, sparse=True), torch.randint(0, 5000, (32, 10))
    return emb, [ids], lambda: emb(ids).square().mean() + emb(ids + 0).mean()


@_model
def gru():
    model, x = nn.GRU(32, 64, 2), torch.randn(20, 8, 32)
    return model, [x], lambda: model(x)[0].square().mean()


@_model
def transformer_layer():
    model, x = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), torch.randn(4, 32, 64)
    return model, [x], lambda: model(x).square().mean()


@_model
def attention_by_hand():
    parts, x = nn.ModuleDict({name: nn.Linear(64, 64) for name in "qkvo"}), torch.randn(4, 32, 64)

    def loss():
        q, k, v = (parts[name](x).view(4, 32, 4, 16).transpose(1, 2) for name in "qkv")
        mixed = (F.softmax(q @ k.transpose(-1, -2) / 4, -1) @ v).transpose(1, 2).reshape(4, 32, 64)
        return (x + parts["o"](mixed)).square().mean()

    return parts, [x], loss


@_model
def dense_connections():
    convs, x = nn.ModuleList([nn.Conv2d(8 * (i + 1), 8, 3, padding=1) for i in range(5)]), torch.randn(4, 8, 16, 16)

    def loss():
        found = [x]
        for conv in convs:
            found.append(F.relu(conv(torch.cat(found, 1))))
        return torch.cat(found, 1).square().mean()

    return convs, [x], loss


@_model
def output_on_ctx():
    class Gate(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.y = x.clamp(min=0)
            return ctx.y

        @staticmethod
        def backward(ctx, g):
            return g * (ctx.y > 0)

    model, x = nn.Linear(64, 512), torch.randn(128, 64)
    return model, [x], lambda: Gate.apply(model(x)).square().mean()


@_model
def gradient_penalty():
    model, x = nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 1)), torch.randn(64, 64, requires_grad=True)

    def loss():
        y = model(x).sum()
        (gradient,) = torch.autograd.grad(y, x, create_graph=True)
        return y + gradient.square().sum()

    return model, [x], loss


_on_features("maximum of rows", lambda y, rows: y.max(1).values.square().mean())
_on_features("largest five", lambda y, rows: y.topk(5, 1).values.mean())
_on_features("gathered", lambda y, rows: y.gather(1, rows[:, None]).mean())
_on_features("rows by index", lambda y, rows: y[rows].square().mean() + y.index_select(0, rows).mean())
_on_features("halves of a tensor", lambda y, rows: (y[:, :256] * y[:, 256:].sigmoid()).mean())
_on_features(
    "convolution along rows", lambda y, rows: F.conv1d(y[:, None], torch.ones(4, 1, 3, requires_grad=True)).mean()
)
for _name, _of in {
    "largest of all rows": lambda y, rows: y.amax(1).mean(),
    "sorted": lambda y, rows: y.sort(1).values.square().mean(),
    "running maximum": lambda y, rows: y.cummax(1).values.mean(),
    "running sum": lambda y, rows: y.cumsum(1).square().mean(),
    "norms": lambda y, rows: y.norm(dim=1).mean() + y.logsumexp(1).mean(),
    "chosen by a mask": lambda y, rows: y[y > 0].mean() + torch.where(y > 0, y, 2 * y).mean(),
    "distances": lambda y, rows: torch.cdist(y, y + 1).mean(),
    "windows": lambda y, rows: y.unfold(1, 4, 2).mean() + y.roll(3, 1).square().mean(),
    "fourier": lambda y, rows: torch.fft.rfft(y).abs().mean(),
    "rows added up": lambda y, rows: torch.zeros(90, 512).index_add(0, rows, y).square().mean(),
}.items():
    _on_features(_name, _of)


@_model
def experts():
    """Each token goes to one of four experts."""
    gate, parts = nn.Linear(32, 4), nn.ModuleList([nn.Linear(32, 64) for _ in range(4)])
    x = torch.randn(256, 32)

    def loss():
        weights, choice = gate(x).softmax(-1).max(-1)
        out = torch.zeros(256, 64)
        for number, part in enumerate(parts):
            rows = (choice == number).nonzero().squeeze(1)
            out = out.index_add(0, rows, part(x[rows]) * weights[rows, None])
        return out.square().mean()

    return nn.ModuleList([gate, parts]), [x], loss


@_model
def skip_connections():
    """Down, up, and what was before joined again."""
    down = nn.ModuleList([nn.Conv2d(c, 2 * c, 3, 2, 1) for c in (4, 8)])
    up = nn.ModuleList([nn.ConvTranspose2d(2 * c, c, 2, 2) for c in (8, 4)])
    x = torch.randn(4, 4, 32, 32)

    def loss():
        seen, h = [], x
        for part in down:
            seen.append(h)
            h = F.relu(part(h))
        for part in up:
            h = part(h) + seen.pop()
        return h.square().mean()

    return nn.ModuleList([down, up]), [x], loss
