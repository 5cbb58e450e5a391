"""Which modules of a model change under eval(), and by how much each changes the output alone and together.

NOTE How a gap is measured.
1. The reference is the output with every module in eval mode.
2. "Alone": one module in train mode, every other one in eval mode. "Together": all in train mode.
3. The gap is the root mean square distance to the reference over that of the reference, over ``repeats`` random seeds.
4. The fused path of transformer layers is off: in eval mode it passes over the layers inside, whatever their mode.
5. Buffers, modes and numbers kept as attributes are put back after each run, so no measurement sees what another one moved.
6. A module that ran and is no submodule is out of reach for eval(); a second forward tells whether it is made anew.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import nn

from lab.instruments.modes.state import ModelState
from lab.instruments.modes.traits import holder, idle_dropouts, initial_shares, kept_in_eval, nonfinite_buffers
from lab.instruments.modes.watch import ModeWatch
from lab.records.modes_models import Ignorer, ModelScan, ModuleRow

MOST_MODULES = 300


def scan_modes(
    model: nn.Module, forward: Callable[[], torch.Tensor], *, seed: int, file: str, device: str, repeats: int = 4
) -> ModelScan:
    """Scan ``model``; ``forward`` runs it once and returns its output. Leaves modes, buffers and generators as they were."""
    modes = {id(module): module.training for module in model.modules()}
    shares, nonfinite = tuple(initial_shares(model)), tuple(nonfinite_buffers(model))
    readers = [(path, m) for path, m in model.named_modules() if reads_training(type(m))]
    with torch.no_grad(), _put_back(model):
        calls = _count_calls([m for _, m in readers], model, forward, seed)
        model.eval()
        reference = _output(model, forward, seed)
        eval_spread = _gap(_output(model, forward, seed + 1), reference)
        with ModeWatch(file, device) as watch:
            _output(model, forward, seed)
        ignoring = _unregistered(model, watch, lambda: _output(model, forward, seed))
        state = ModelState(model)
        _output(model, forward, seed, put_back=False)
        changed = state.changes()
        state.restore()
        rows = [
            _module_row(model, path, module, forward, reference, seed, repeats, calls[id(module)], modes[id(module)])
            for path, module in readers[:MOST_MODULES]
        ]
        model.train()
        kept = kept_in_eval(model)
        together = [_output(model, forward, seed + i) for i in range(max(repeats, 2))]
    return ModelScan(
        modules=tuple(rows),
        module_count=len(modes),
        not_scanned=max(len(readers) - MOST_MODULES, 0),
        in_train_mode=sum(modes.values()),
        in_eval_mode=len(modes) - sum(modes.values()),
        gap_together=_mean_gap(together, reference),
        eval_spread=eval_spread,
        train_spread=_gap(together[1], together[0]),
        ignoring=tuple(dict.fromkeys(ignoring)),
        output_size=reference.numel(),
        changed_in_eval=changed,
        kept_in_eval=kept,
        idle_dropouts=tuple(idle_dropouts(model)),
        initial_shares=shares,
        nonfinite=nonfinite,
    )


def _unregistered(model: nn.Module, watch: ModeWatch, again: Callable[[], torch.Tensor]) -> list[Ignorer]:
    """The calls that ignored eval(), with what is known of those whose module is no submodule."""
    known = {id(module) for module in model.modules()}
    strangers = {id(module) for module in watch.modules if module is not None and id(module) not in known}
    if not strangers:
        return watch.found
    with ModeWatch(watch.file, watch.device) as second:
        again()
    met_again = {
        id(module) for module in second.modules
    }  # watch.modules keeps the first ones alive: no id is used twice
    return [
        replace(call, registered=False, held=holder(model, module), made_anew=id(module) not in met_again)
        if module is not None and id(module) in strangers
        else call
        for call, module in zip(watch.found, watch.modules, strict=True)
    ]


def reads_training(kind: type) -> bool:
    """Whether some method of the class, below nn.Module, mentions ``training``."""
    return any(
        "training" in function.__code__.co_names
        for cls in kind.__mro__
        if issubclass(cls, nn.Module) and cls is not nn.Module
        for function in vars(cls).values()
        if hasattr(function, "__code__")
    )


def _module_row(
    model: nn.Module,
    path: str,
    module: nn.Module,
    forward: Callable[[], torch.Tensor],
    reference: torch.Tensor,
    seed: int,
    repeats: int,
    calls: int,
    training: bool,
) -> ModuleRow:
    model.eval()
    module.training = True  # this one only: train() would take its children along
    state, outputs, moved = ModelState(model), [], False
    for i in range(repeats):
        outputs.append(_output(model, forward, seed + i, put_back=False))
        moved |= any(change.kind == "buffer" for change in state.changes())
        state.restore()
    module.training = False
    kind, gap = type(module).__name__, _mean_gap(outputs, reference)
    return ModuleRow(path or "(the model)", kind, training, calls, gap, moved, _setting(module))


def _setting(module: nn.Module) -> str:
    names = ("p", "dropout", "momentum", "track_running_stats")
    return ", ".join(f"{name}={getattr(module, name)}" for name in names if hasattr(module, name))


def _output(model: nn.Module, forward: Callable[[], torch.Tensor], seed: int, put_back: bool = True) -> torch.Tensor:
    torch.manual_seed(seed)
    state = ModelState(model) if put_back else None
    output = forward().detach().double()
    if state:
        state.restore()
    return output


@contextlib.contextmanager
def _put_back(model: nn.Module) -> Iterator[None]:
    modes = [(module, module.training) for module in model.modules()]
    state, fused = ModelState(model), torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    with torch.random.fork_rng():
        try:
            yield
        finally:
            torch.backends.mha.set_fastpath_enabled(fused)
            for module, mode in modes:
                module.training = mode
            state.restore()


def _count_calls(
    modules: list[nn.Module], model: nn.Module, forward: Callable[[], torch.Tensor], seed: int
) -> dict[int, int]:
    calls = {id(module): 0 for module in modules}

    def count(module: nn.Module, _: object) -> None:
        calls[id(module)] += 1

    handles = [module.register_forward_pre_hook(count) for module in modules]
    model.eval()
    _output(model, forward, seed)
    for handle in handles:
        handle.remove()
    return calls


def _gap(output: torch.Tensor, reference: torch.Tensor) -> float:
    """Relative root mean square distance; absolute when the reference is zero. 0 only for equal outputs."""
    size = reference.square().mean().sqrt().item()
    return (output - reference).square().mean().sqrt().item() / (size or 1.0)


def _mean_gap(outputs: list[torch.Tensor], reference: torch.Tensor) -> float:
    """Root of the mean square over repeats."""
    return math.sqrt(sum(_gap(y, reference) ** 2 for y in outputs) / len(outputs))
