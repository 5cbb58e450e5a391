"""The model, its batch and its loss in files as people paste them."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.nn.modules import module as module_hooks

from lab.experiments.gradient_flow import Params
from lab.program.own_model import OwnModel, OwnModelError
from lab.program.run import Ran, run_typed, torch_defaults
from lab.program.trained import model_of

PASTED = Path(__file__).resolve().parents[2] / "cases/pasted"


def go(code: str) -> Ran:
    with torch_defaults(0, "cpu"):
        ran = run_typed(Params(family="own", code=code), share=0.9)
    assert ran.ended is None, ran.ended
    return ran


def pasted(name: str) -> Ran:
    return go((PASTED / f"{name}.txt").read_text())


def asked(ran: Ran) -> str:
    with pytest.raises(OwnModelError) as caught:
        model_of(ran)
    return str(caught.value)


MSE, OWN = "mean squared error", "the program's own loss, line {}"
FOUND = {
    "mnist_cnn": ("Net", "nll_loss", (16, 1, 12, 12)),
    "nano_gpt": ("GPT", OWN.format(117), (4, 16)),
    "hf_trainer": ("BertLike", OWN.format(79), (4, 6)),
    "vae_in_train": ("VAE", OWN.format(42), (16, 3, 4)),
    "lstm_lm": ("RNNModel", "CrossEntropyLoss", (5, 4)),
    "resnet_loop": ("ResNet", "CrossEntropyLoss", (8, 3, 8, 8)),
    "forecast_main": ("Forecaster", OWN.format(40), (6, 5, 3)),
    "inference_only": ("ViT", "mean square of the output", (2, 3, 8, 8)),
    "dqn": ("DQN", "SmoothL1Loss", (8, 4)),
    "unet_multi_loss": ("UNet", OWN.format(46), (2, 1, 8, 8)),
    "gan_named": ("Sequential", "BCELoss", (8, 8)),
}


@pytest.mark.parametrize("name", FOUND)
def test_a_pasted_file_gives_its_model_its_batch_and_its_loss(name: str) -> None:
    own = model_of(pasted(name))
    assert (type(own.model).__name__, own.loss_name, tuple(own.inputs[0].shape)) == FOUND[name]
    for _ in range(2):  # again and again: nothing of the graph before is left
        own.model.zero_grad()
        own.loss().backward()
        assert any(p.grad is not None and p.grad.abs().sum() > 0 for p in own.model.parameters())


def test_two_trained_modules_are_asked_about_by_name() -> None:
    assert "trains several modules: D, G" in asked(pasted("gan"))


def test_a_file_of_classes_is_told_what_to_write() -> None:
    message = asked(pasted("gpt_classes_only"))
    assert "model = GPT(config)" in message
    assert "batch = (inputs, target)" in message


LOOP = """
from torch.utils.data import DataLoader, TensorDataset
def main():
    torch.manual_seed(0)
    regressor = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(regressor.parameters(), lr=0.0)
    loader = DataLoader(TensorDataset(torch.randn(8, 3), torch.randn(8)), batch_size=4)
    for step, (features, speed) in enumerate(loader):
        features = features * 2
        guess = regressor(features).squeeze(1)
        {loss}
        optimizer.zero_grad()
        {backward}
        optimizer.step()
    print(repr({kept}))
if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize(
    ("loss", "backward"),
    [
        ("err = F.mse_loss(guess, speed)", "err.backward()"),
        ("err = ((guess - speed) ** 2).mean()", "torch.autograd.backward(err)"),
        (
            "diff = guess - speed\n        err = 0\n        for d in diff:\n            err += d * d / 4",
            "err.backward()",
        ),
        ("err = F.mse_loss(guess, speed)", "(err / 1).backward(); err = err.detach()"),
        ("parts = []\n        parts.append(F.mse_loss(guess, speed))\n        err = sum(parts)", "err.backward()"),
        ("err = F.mse_loss(guess, speed)", "if err > 0:\n            err.backward()"),
        (
            "with torch.autocast('cpu', enabled=False):\n            err = F.mse_loss(guess, speed)",
            "err.backward()\n        del guess",
        ),
    ],
)
def test_the_loss_is_the_one_of_the_last_step_in_main(loss: str, backward: str) -> None:
    ran = go(LOOP.format(loss=loss, backward=backward, kept="(err.item(), features.sum().item(), speed.tolist())"))
    told, features, speed = eval(ran.said.printed)
    own = model_of(ran)
    assert own.loss().item() == pytest.approx(told)  # with a learning rate of 0 the last step repeats itself
    assert own.inputs[0].sum().item() == pytest.approx(features)  # as the model got them: doubled once, not twice
    assert own.target is not None
    assert own.target.tolist() == speed
    # the planted error: doubling the batch again would be seen
    assert F.mse_loss(own.model(own.inputs[0] * 2)[:, 0], own.target).item() != pytest.approx(told)


def test_another_model_and_a_part_of_the_batch_take_their_places() -> None:
    own = model_of(go(LOOP.format(loss="err = F.mse_loss(guess, speed)", backward="err.backward()", kept="1")))
    assert own.loss_of
    half: Any = {name: value[:2] for name, value in own.batch.items()}
    twin = copy.deepcopy(own.model)
    torch.nn.init.zeros_(twin.weight)  # pyright: ignore
    torch.nn.init.zeros_(twin.bias)  # pyright: ignore
    # guess keeps no row of the whole batch: it is computed anew from the part
    assert own.loss_of(twin, half)().item() == pytest.approx(half["speed"].square().mean().item())


def test_the_values_of_a_step_do_not_keep_its_graph_alive() -> None:
    ran = go(
        "import weakref\nnet = nn.Linear(2, 2)\nalive = []\n"
        "def step():\n    out = net(torch.ones(1, 2))\n    alive.append(weakref.ref(out))\n"
        "    loss = out.sum()\n    loss.backward()\nstep()\nprint([ref() for ref in alive])\n"
    )
    assert ran.said.printed == "[None]\n"
    assert isinstance(model_of(ran), OwnModel)


def test_the_program_is_main_while_it_runs_and_exits_well() -> None:
    ran = go(
        "import sys, typing\nfrom dataclasses import dataclass\n@dataclass\nclass A:\n    b: 'B'\nclass B: pass\n"
        "print(typing.get_type_hints(A)['b'] is B, sys.modules['__main__'].A is A)\n"
        "def main(): return 0\nif __name__ == '__main__':\n    sys.exit(main())\n"
    )
    assert ran.said.printed == "True True\n"


def test_a_loader_gives_its_first_batch() -> None:
    own = model_of(
        go(
            "from torch.utils.data import DataLoader, TensorDataset\nnet = nn.Linear(2, 3)\n"
            "train_loader = DataLoader(TensorDataset(torch.ones(8, 2), torch.zeros(8).long()), batch_size=4)\n"
        )
    )
    torch.testing.assert_close(own.loss(), F.cross_entropy(own.model(torch.ones(4, 2)), torch.zeros(4).long()))


def test_what_the_model_prints_while_it_is_measured_is_kept(capfd: pytest.CaptureFixture[str]) -> None:
    with torch_defaults(0, "cpu"):
        code = "class M(nn.Linear):\n    def forward(self, x):\n        print('shape', tuple(x.shape))\n        return super().forward(x)\n"
        ran = run_typed(Params(family="own", code=code + "model, batch = M(2, 2), torch.ones(3, 2)"), share=0.9)
        assert ran.said.printed == ""
        own = model_of(ran)
        own.loss()
        assert ran.said.printed == "shape (3, 2)\n"
        for _ in range(6000):  # up to the limit, and no fault
            own.loss()
    assert len(ran.said.printed.encode()) == 64 << 10
    assert capfd.readouterr() == ("", "")


def test_no_hook_stays_behind() -> None:
    """torch.compile warns of any hook on all modules, and a warm worker compiles for the next visitor."""
    code = "model = nn.Linear(4, 2)\nloss = model(torch.ones(1, 4)).sum()\nloss.backward()\n"
    go(code)
    left = {
        name: len(kept)
        for name, kept in vars(module_hooks).items()
        if name.startswith("_global") and isinstance(kept, dict)
    }
    assert left
    assert not any(left.values()), left
