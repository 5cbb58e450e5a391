"""What a program may change outside itself in a process that goes on: kept before, put back after."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import random
import sys
from collections.abc import Iterator

import torch

from lab.program.lines import FILE


@contextlib.contextmanager
def put_back() -> Iterator[None]:
    """Inside, the program is a script without arguments. Afterwards everything is as it was."""
    with _interpreter(), _logging(), _generators(), _torch():
        yield


@contextlib.contextmanager
def _interpreter() -> Iterator[None]:
    argv, path, modules = sys.argv, sys.path, set(sys.modules)
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
        (gc.enable if collects else gc.disable)()
        for name in [name for name, module in list(sys.modules.items()) if name not in modules]:
            if getattr(sys.modules[name], "__spec__", None) is None:  # made by the program, not imported
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
    try:
        yield
    finally:
        random.setstate(states[0])
        torch.set_rng_state(states[1])
        if numpy:
            numpy.random.set_state(states[2])


@contextlib.contextmanager
def _torch() -> Iterator[None]:
    dtype, grad, anomaly = torch.get_default_dtype(), torch.is_grad_enabled(), torch.is_anomaly_enabled()
    threads, strict = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
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
            torch.use_deterministic_algorithms(strict)
        torch.set_printoptions(profile="default")
