"""What a program may change outside itself in a process that goes on: kept before, put back after."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import random
import signal
import sys
import types
from collections.abc import Iterator
from typing import Any

import torch

from lab.program.lines import FILE


@contextlib.contextmanager
def put_back() -> Iterator[None]:
    """Inside, the program is a script without arguments. Afterwards everything is as it was."""
    with _interpreter(), _logging(), _generators(), _torch():
        yield


class _Main(types.ModuleType):
    """The program as a module: its attributes are the names of the program."""

    def __init__(self, names: dict[str, Any]) -> None:
        super().__init__("__main__")
        super().__setattr__("_names", names)

    def __getattribute__(self, name: str) -> Any:
        names = super().__getattribute__("_names")
        if name == "__dict__":
            return names
        return names[name] if name in names else super().__getattribute__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__getattribute__("_names")[name] = value


@contextlib.contextmanager
def as_main(names: dict[str, Any]) -> Iterator[None]:
    """Inside, ``__main__`` is the program: type hints, dataclasses and copies look their names up there."""
    before = sys.modules["__main__"]
    sys.modules["__main__"] = _Main(names)
    try:
        yield
    finally:
        sys.modules["__main__"] = before


@contextlib.contextmanager
def _interpreter() -> Iterator[None]:
    argv, path, modules = sys.argv, sys.path, set(sys.modules)
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
    environment, depth, collects = dict(os.environ), sys.getrecursionlimit(), gc.isenabled()
    sys.argv, sys.path = [FILE], list(path)
    try:
        yield
    finally:
        sys.argv, sys.path = argv, path
        if dict(os.environ) != environment:
            os.environ.clear()
            os.environ.update(environment)
        sys.setrecursionlimit(depth)
        for number, handler in handlers.items():
            if signal.getsignal(number) is not handler:
                signal.signal(number, handler)
        (gc.enable if collects else gc.disable)()
        for name in [name for name, module in list(sys.modules.items()) if name not in modules]:
            # made by the program, not imported: what was imported is the same for whoever imports it next
            if getattr(sys.modules[name], "__spec__", None) is None:
                del sys.modules[name]


@contextlib.contextmanager
def _logging() -> Iterator[None]:
    """Inside, logging as a fresh interpreter has it."""
    root = logging.getLogger()
    known = {name: logger for name, logger in root.manager.loggerDict.items() if isinstance(logger, logging.Logger)}
    loggers = [root, *known.values()]
    before = [(logger, list(logger.handlers), logger.level, logger.propagate, logger.disabled) for logger in loggers]
    disabled = root.manager.disable
    root.handlers[:] = []  # as in a fresh interpreter: basicConfig would do nothing where there are handlers
    root.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(disabled)
        for logger, handlers, level, propagate, off in before:
            logger.handlers[:] = handlers
            if logger.level != level:
                logger.setLevel(level)
            logger.propagate, logger.disabled = propagate, off
        for name, logger in list(root.manager.loggerDict.items()):
            if name not in known and isinstance(logger, logging.Logger):
                logger.handlers.clear()
                logger.setLevel(logging.NOTSET)


@contextlib.contextmanager
def _generators() -> Iterator[None]:
    numpy = sys.modules.get("numpy")
    states = random.getstate(), torch.get_rng_state(), numpy.random.get_state() if numpy else None
    devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    try:
        yield
    finally:
        random.setstate(states[0])
        torch.set_rng_state(states[1])
        if devices:
            torch.cuda.set_rng_state_all(devices)
        if numpy:
            numpy.random.set_state(states[2])


@contextlib.contextmanager
def _torch() -> Iterator[None]:
    dtype, grad, anomaly = torch.get_default_dtype(), torch.is_grad_enabled(), torch.is_anomaly_enabled()
    threads, strict = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    warn_only, precisions = torch.is_deterministic_algorithms_warn_only_enabled(), _precisions()
    flags = [(holder, name, getattr(holder, name)) for holder, name in _FLAGS]
    switches = [(switch, is_on()) for switch, is_on in _SWITCHES]
    autocast = [(name, torch.is_autocast_enabled(name), torch.get_autocast_dtype(name)) for name in _AUTOCAST]
    depth = _autocast_depth()
    start, sharing = (
        torch.multiprocessing.get_start_method(allow_none=True),
        torch.multiprocessing.get_sharing_strategy(),
    )
    try:
        yield
    finally:
        torch.set_default_device(None)
        torch.set_default_dtype(dtype)
        torch.set_grad_enabled(grad)
        torch.autograd.set_detect_anomaly(anomaly)
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        if torch.are_deterministic_algorithms_enabled() != strict:
            torch.use_deterministic_algorithms(strict, warn_only=warn_only)
        _put_precisions_back(precisions)
        for holder, name, value in flags:
            if getattr(holder, name) != value:
                setattr(holder, name, value)
        for switch, was_on in switches:
            switch(was_on)
        if torch.multiprocessing.get_start_method(allow_none=True) != start:
            torch.multiprocessing.set_start_method(start, force=True)
        torch.multiprocessing.set_sharing_strategy(sharing)
        for name, was_on, low in autocast:
            torch.set_autocast_enabled(name, was_on)
            torch.set_autocast_dtype(name, low)
        while _autocast_depth() > depth:  # entered and never left: its casts would be kept for good
            torch.autocast_decrement_nesting()
        torch.clear_autocast_cache()
        torch.set_flush_denormal(False)
        torch.set_printoptions(profile="default")  # as they were: nothing of the lab sets them


def _autocast_depth() -> int:
    """How many autocast regions are open; torch tells only while it counts."""
    torch.autocast_increment_nesting()
    return torch.autocast_decrement_nesting()


def _precisions() -> list[Any]:
    """How exact float32 is on each device, asked in the old way and in the new one; torch refuses the old after a mix of both."""
    try:
        old = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    except RuntimeError:
        old = None
    return [old, *(holder.fp32_precision for holder in _PRECISIONS)]


def _put_precisions_back(before: list[Any]) -> None:
    if _precisions() == before:
        return
    if before[0]:  # the old switches first: they set the new ones as well
        torch.set_float32_matmul_precision(before[0][0])
        torch.backends.cudnn.allow_tf32 = before[0][1]
    for holder, value in zip(_PRECISIONS, before[1:], strict=True):
        if holder.fp32_precision != value:
            holder.fp32_precision = value


_FLAGS = (
    *((torch.backends.cudnn, name) for name in ("enabled", "benchmark", "deterministic", "benchmark_limit")),
    *((torch.backends.mkldnn, name) for name in ("enabled", "deterministic")),
    *((torch.backends.opt_einsum, name) for name in ("enabled", "strategy")),
    (torch.backends.cuda.matmul, "allow_fp16_reduced_precision_reduction"),
    (torch.backends.cuda.matmul, "allow_bf16_reduced_precision_reduction"),
    (torch.utils.deterministic, "fill_uninitialized_memory"),
)
_PRECISIONS: tuple[Any, ...] = (
    *(torch.backends, torch.backends.cuda.matmul),
    *(torch.backends.cudnn, *(getattr(torch.backends.cudnn, name) for name in ("conv", "rnn"))),
    *(torch.backends.mkldnn, *(getattr(torch.backends.mkldnn, name) for name in ("matmul", "conv", "rnn"))),
)
"""Where TF32 and the like are chosen; the wider before the narrower, which it overwrites."""
_AUTOCAST = ("cpu", "cuda")
_SWITCHES = (
    (torch.autograd.set_multithreading_enabled, torch.autograd.is_multithreading_enabled),
    (torch.set_warn_always, torch.is_warn_always_enabled),
    (torch.backends.mha.set_fastpath_enabled, torch.backends.mha.get_fastpath_enabled),
    (torch.backends.cuda.enable_cudnn_sdp, torch.backends.cuda.cudnn_sdp_enabled),
    (torch.backends.cuda.enable_flash_sdp, torch.backends.cuda.flash_sdp_enabled),
    (torch.backends.cuda.enable_mem_efficient_sdp, torch.backends.cuda.mem_efficient_sdp_enabled),
    (torch.backends.cuda.enable_math_sdp, torch.backends.cuda.math_sdp_enabled),
)
