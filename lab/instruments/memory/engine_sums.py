"""Gradients that meet are added as a bare run adds them: in place where the engine would.

NOTE Why this is needed, and how it is done.
1. Where a tensor was read by several operations, the engine adds their gradients, in place in the first one if nobody
   else holds it. While any dispatch mode is on it always makes a new tensor, so the peak of tied weights, residual
   connections and recurrent nets would come out too high by the gradients that meet. Sparse gradients are copied.
2. A node's own formula may add, too. The engine's sum comes after the node is done, which a hook says; only nodes whose
   gradient meets another get one.
3. The rule is the engine's (``can_accumulate_inplace`` in torch/csrc/autograd/input_buffer.cpp): no gradient mode, the
   memory dense, one reference to the tensor and one to its storage. Fake tensors have the same counts.
4. Formulas that fill zeros with a gradient (of index, gather, max, sort) write in place, except under a mode.
5. A few formulas (prod, cumprod) take another path under a mode; what that adds is seen where the bare run is compared.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.graph import Node

from lab.torch_private import (
    called_by_engine,
    engine_alone_holds,
    feeders,
    is_leaf_node,
    listen_to_engine,
    operator,
    running_node,
    sparse_parts,
    stop_listening_to_engine,
)

_ADD, _CLONE = operator("aten.add.Tensor"), operator("aten.clone.default")
_IN_PLACE = {
    operator(f"aten.{name}.{overload}"): operator(f"aten.{name}_.{overload}")
    for name, overload in (
        *(("add", "Tensor"), ("scatter", "src"), ("scatter_add", "default"), ("index_add", "default")),
        *(("index_put", "default"), ("masked_scatter", "default"), ("put", "default")),
    )
}
DIFFERENT = {*_IN_PLACE, _CLONE}
"""Operations that a bare run may do in other bytes."""


class EngineSums:
    """Knows which node of a running engine is done."""

    def __init__(self) -> None:
        self._done: Node | None = None

    def enter(self) -> None:
        listen_to_engine(self._around)

    def leave(self) -> None:
        stop_listening_to_engine(self._around)

    def _around(self, roots: Any, engine: Any) -> Any:
        handles = [node.register_hook(self._node_is_done) for node in feeders(roots)]
        try:
            return engine()
        finally:
            self._done = None
            for handle in handles:
                handle.remove()

    def _node_is_done(self, *gradients: Any) -> None:
        self._done = running_node()

    def bare(self, func: Any, args: Any, fresh_zeros: bool) -> Any:
        """What a bare run does for ``func``, one of ``DIFFERENT``, which the engine asked a dispatch mode for.

        ``fresh_zeros``: the last operation made ``args[0]``, and filled it with zeros.
        """
        if torch.is_grad_enabled() or not called_by_engine(2):
            return func
        if func is _CLONE:
            at_leaf = (node := running_node()) is not None and is_leaf_node(node)
            return same_parts if at_leaf and args[0].layout is torch.sparse_coo else func
        if func is _ADD:
            is_sum = running_node() is self._done and args[0].layout is torch.strided
            return _IN_PLACE[func] if is_sum and engine_alone_holds(args) else func
        return _IN_PLACE[func] if fresh_zeros else func


def same_parts(sparse: torch.Tensor, **options: Any) -> torch.Tensor:
    """Another tensor of the same indices and values, as a leaf takes its first gradient over."""
    parts = sparse_parts(sparse)
    return torch.sparse_coo_tensor(*parts, sparse.shape, is_coalesced=sparse.is_coalesced(), check_invariants=False)
