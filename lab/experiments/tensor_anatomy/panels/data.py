"""An image, a text and a table as tensors: shapes and dtypes at each line, and the swap of layouts that nobody refuses."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from lab.contract import Report
from lab.experiments.tensor_anatomy.schema import Params, Result
from lab.records.tensors import DataStep, Swap

TEXT = "the cat sat on the mat"
NEW_TOKENS = 4
ROWS = (("Rome", 21.5, 3), ("Oslo", 7.0, 1), ("Rome", 24.0, 2))
COLUMNS = ("city", "degrees", "count")


def measure(params: Params, report: Report) -> Result:
    """All three."""
    steps = (*image_steps(params.device), *text_steps(params.seed, params.device), *table_steps(params.device))
    return Result(view="data", data=steps, swap=swap(params.device), device=params.device)


def picture(device: str = "cpu") -> torch.Tensor:
    """(H, W, C) bytes as a decoder gives them: red rises downwards, green to the right, blue is 200."""
    rows, columns = torch.arange(4, device=device), torch.arange(6, device=device)
    red, green = (40 * rows)[:, None].expand(4, 6), (30 * columns)[None, :].expand(4, 6)
    return torch.stack([red, green, torch.full_like(red, 200)], dim=-1).to(torch.uint8)


def image_steps(device: str) -> Iterator[DataStep]:
    """Bytes, to channels first, to floats, to a batch, through a convolution."""
    image = picture(device)
    yield _step("image", "image", image, f"height, width, channels; pixel (1, 2) is {image[1, 2].tolist()}")
    first = image.permute(2, 0, 1)
    yield _step("image", "image.permute(2, 0, 1)", first, f"channels first: a view, strides {list(first.stride())}")
    scaled = first.float() / 255
    yield _step("image", ".float() / 255", scaled, f"from {scaled.min():.2f} to {scaled.max():.2f}")
    normal = (scaled - scaled.mean((1, 2), keepdim=True)) / scaled.std((1, 2), keepdim=True).clamp_min(1e-6)
    yield _step(
        "image", "normalised by channel", normal, "mean 0 in each channel; (3, 1, 1) is repeated over the pixels"
    )
    batch = torch.stack([normal, normal.flip(2)])
    yield _step("image", "torch.stack([image, image.flip(2)])", batch, "a batch in front: N, C, H, W")
    with torch.no_grad():
        yield _step(
            "image", "nn.Conv2d(3, 8, 3)(batch)", nn.Conv2d(3, 8, 3, device=device)(batch), "8 channels, no border"
        )


def swap(device: str) -> Swap:
    """The layout changed by permute and by reshape: same shape, other pixels, no error."""
    image = picture(device).float()
    right, wrong = image.permute(2, 0, 1), image.reshape(3, 4, 6)
    with torch.no_grad():
        nn.Conv2d(3, 8, 3, device=device)(wrong[None])
    return Swap(
        tuple(wrong.shape),
        tuple(image[1, 2].tolist()),
        tuple(right[:, 1, 2].tolist()),
        tuple(wrong[:, 1, 2].tolist()),
        int((right != wrong).sum()),
        wrong.numel(),
        "Conv2d(3, 8, 3)",
    )


def vocabulary(text: str = TEXT) -> dict[str, int]:
    """Each character, numbered."""
    return {c: i for i, c in enumerate(sorted(set(text)))}


def text_steps(seed: int, device: str) -> Iterator[DataStep]:
    """Characters to ids to vectors to scores, and one new character at a time."""
    ids = vocabulary()
    letters = {i: c for c, i in ids.items()}
    tokens = torch.tensor([[ids[c] for c in TEXT]], device=device)
    yield _step(
        "text",
        "torch.tensor([[ids[c] for c in text]])",
        tokens,
        f"{TEXT!r}: {tokens[0, :6].tolist()} … of {len(ids)} characters",
    )
    torch.manual_seed(seed)
    embedding, head = nn.Embedding(len(ids), 16, device=device), nn.Linear(16, len(ids), device=device)
    with torch.no_grad():
        yield _step("text", "embedding(tokens)", embedding(tokens), "one vector of 16 for each id")
        scores = head(embedding(tokens))
        yield _step("text", "head(...)", scores, f"a score for each of the {len(ids)} characters at each place")
        for number in range(NEW_TOKENS):
            last = head(embedding(tokens))[:, -1]
            new = last.argmax(-1, keepdim=True)
            tokens = torch.cat([tokens, new], dim=1)
            what = (
                f"new id {new.item()} is {letters[int(new)]!r}; the scores {list(last.shape)} of the last place decide"
            )
            yield _step("text", f"torch.cat([tokens, new], 1), time {number + 1}", tokens, what)
    shown = "".join(letters[int(i)] for i in tokens[0])
    yield _step("text", "''.join(letters[i] for i in tokens[0])", tokens[0], f"{shown!r}: the model is untrained")


def table_steps(device: str) -> Iterator[DataStep]:
    """Numbers to one float tensor, words to ids, and one row a sample."""
    numbers = torch.tensor([row[1:] for row in ROWS], device=device)
    yield _step(
        "table", "torch.tensor(number columns)", numbers, f"{', '.join(COLUMNS[1:])}: one float32 for all columns"
    )
    names = sorted({row[0] for row in ROWS})
    cities = torch.tensor([names.index(row[0]) for row in ROWS], device=device)
    yield _step("table", "torch.tensor(ids of the city)", cities, f"{cities.tolist()} for {[row[0] for row in ROWS]}")
    hot = nn.functional.one_hot(cities, len(names))
    yield _step("table", "F.one_hot(cities)", hot, "whole numbers: convert before joining with floats")
    features = torch.cat([numbers, hot.float()], dim=1)
    yield _step("table", "torch.cat([numbers, hot.float()], 1)", features, "a row a sample, a column a feature")
    scaled = (features - features.mean(0)) / features.std(0)
    yield _step(
        "table",
        "(x - x.mean(0)) / x.std(0)",
        scaled,
        f"each column by itself: ({features.shape[1]},) is repeated over {list(features.shape)}",
    )


def _step(data: str, call: str, tensor: torch.Tensor, shows: str) -> DataStep:
    return DataStep(data, call, tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), shows)
