"""What the dispatcher cannot see by itself: module paths, gradients, optimizer state, tensors saved for backward."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.graph import Node, saved_tensors_hooks

from lab.instruments.memory.ledger import Event, Ledger, storages_of
from lab.torch_private import in_backward, node_metadata, version

if TYPE_CHECKING:
    from lab.instruments.memory.tracker import MemoryTrack


class Held:
    """What the pack hook gives to autograd: it lives exactly as long as autograd keeps the tensor.

    Holds a detached alias: the tensor itself would make a cycle through its own ``grad_fn``.
    """

    __slots__ = ("alias", "ledger", "numbers", "version")

    def __init__(self, alias: torch.Tensor, version: int | None, numbers: list[int], ledger: Ledger) -> None:
        self.alias, self.version, self.numbers, self.ledger = alias, version, numbers, ledger

    def __del__(self) -> None:
        if self.ledger.open:
            self.ledger.events += [Event("released", number, self.ledger.op) for number in self.numbers]


class Hooks:
    """Hooks on the given modules and optimizer only: global ones would also hear other threads."""

    def __init__(
        self, track: MemoryTrack, modules: Mapping[str, torch.nn.Module], optimizer: torch.optim.Optimizer | None
    ) -> None:
        self.running: list[str] = []
        """Paths of the modules that run now, outermost first."""
        self.in_optimizer = False
        self._track, self._modules, self._optimizer = track, modules, optimizer
        self._paths: dict[torch.nn.Module, str] = {}
        self._handles: list[Any] = []
        self._saving = saved_tensors_hooks(self._pack, self._unpack)

    def enter(self) -> None:
        """Register what is there already and install the hooks."""
        for prefix, module in self._modules.items():
            self._register(prefix, module)
        if self._optimizer is not None:
            self._note_state()
            self._handles += [
                self._optimizer.register_step_pre_hook(self._step_starts),
                self._optimizer.register_step_post_hook(self._step_ends),
            ]
        self._saving.__enter__()

    def leave(self) -> None:
        """Remove everything that ``enter`` installed, and let go of the program's objects."""
        self._saving.__exit__()
        for handle in self._handles:
            handle.remove()
        self._modules, self._optimizer = {}, None
        self._paths.clear()
        self._handles.clear()

    def _register(self, prefix: str, module: torch.nn.Module) -> None:
        ledger = self._track.ledger
        for path, part in module.named_modules(prefix=prefix):
            self._paths[part] = path or type(part).__name__
            self._handles += [
                part.register_forward_pre_hook(self._module_starts),
                part.register_forward_hook(self._module_ends, always_call=True),
            ]
        for name, parameter in module.named_parameters(prefix):
            ledger.static(parameter, "parameters", name)
            if parameter.grad is not None:
                ledger.role(parameter.grad, "gradient")
            if parameter.requires_grad:
                self._handles.append(parameter.register_post_accumulate_grad_hook(self._gradient_is_there))
        for name, buffer in module.named_buffers(prefix):
            ledger.static(buffer, "buffers", name)

    def _module_starts(self, module: torch.nn.Module, args: Any) -> None:
        self.running.append(self._paths[module])

    def _module_ends(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        path = self.running.pop()
        if not in_backward():
            label_nodes(_nodes(output), path)

    def _gradient_is_there(self, parameter: torch.Tensor) -> None:
        if parameter.grad is not None:
            self._track.ledger.role(parameter.grad, "gradient")

    def _step_starts(self, *args: Any) -> None:
        self.in_optimizer = True

    def _step_ends(self, *args: Any) -> None:
        self.in_optimizer = False
        self._note_state()

    def _note_state(self) -> None:
        assert self._optimizer is not None
        for state in self._optimizer.state.values():
            for value in state.values():
                if isinstance(value, torch.Tensor):
                    self._track.ledger.role(value, "optimizer state")

    def _pack(self, tensor: torch.Tensor) -> Held:
        ledger, self._track.quiet = self._track.ledger, True
        try:
            alias = tensor.detach()
        finally:
            self._track.quiet = False
        ledger.role(alias, "saved")
        numbers = [n for s in storages_of(alias) if (n := ledger.number(s)) is not None]
        return Held(alias, version(tensor), numbers, ledger)

    def _unpack(self, held: Held) -> torch.Tensor:
        now = None if held.version is None else version(held.alias)
        if now != held.version:  # torch does not check where hooks are installed
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace operation: "
                f"{held.alias.dtype} {list(held.alias.shape)} is at version {now}; "
                f"expected version {held.version} instead"
            )
        return held.alias


def label_nodes(nodes: list[Node], path: str) -> None:
    """Note the module on every node that no inner module has labelled yet."""
    while nodes:
        node = nodes.pop()
        about = node_metadata(node)
        if "module" not in about:
            about["module"] = path
            nodes.extend(parent for parent, _ in node.next_functions if parent is not None)


def _nodes(output: Any) -> list[Node]:
    if isinstance(output, torch.Tensor):
        return [output.grad_fn] if output.grad_fn is not None else []
    if isinstance(output, Mapping):
        output = output.values()
    elif not isinstance(output, (list, tuple)):
        return []
    return [node for item in output for node in _nodes(item)]
