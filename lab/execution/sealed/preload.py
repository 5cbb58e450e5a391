"""What the zygote imports and warms up, since a sealed process opens no file: an import that is not done here fails there."""

from __future__ import annotations

import contextlib
import importlib
import os
import pkgutil
import time
from pathlib import Path
from types import ModuleType

from lab.contract import NotAvailableError, program_knob, silent
from lab.execution.perform import types_of

_WARM_UP_S = 0.2
"""Experiments whose turn would come later stay cold."""
_LAZY_S = 10.0
"""Longest time for what one package of the operator reads at first use."""
_QUICK_S = 10.0
"""An experiment that may take longer is no warm-up."""


def _names(text: str) -> list[str]:
    return text.split()


# what visitors may import, and what Python itself imports on the way to an error message
_PYTHON = _names("""
__future__ abc argparse array ast asyncio base64 binascii bisect calendar cmath codecs collections.abc colorsys concurrent.futures
concurrent.futures.process concurrent.futures.thread contextlib copy
copyreg csv dataclasses datetime decimal difflib dis encodings.ascii encodings.idna encodings.latin_1
encodings.unicode_escape encodings.utf_16 encodings.utf_32 enum errno fnmatch fractions functools gc getpass glob graphlib
gettext hashlib heapq hmac html importlib importlib.metadata importlib.util inspect io itertools json keyword linecache
locale logging logging.config logging.handlers math multiprocessing
multiprocessing.pool multiprocessing.popen_fork multiprocessing.popen_spawn_posix multiprocessing.queues
multiprocessing.synchronize numbers operator os pathlib pickle platform pprint queue random re
reprlib resource secrets shutil signal stat statistics string struct sys tempfile textwrap threading time timeit token tokenize
traceback types typing unicodedata unittest unittest.mock uuid warnings weakref zlib _strptime
""")

# modules that torch imports on first use of something
_TORCH = _names("""
numpy numpy.random numpy.linalg numpy.fft numpy.ma numpy.polynomial torch torchviz torch.func torch.fft torch.linalg
torch.special torch.sparse torch.nested torch.masked torch.random torch.distributions torch.autograd.functional
torch.autograd.forward_ad torch.autograd.gradcheck torch.autograd.graph torch.autograd.profiler torch.nn.attention
torch.nn.attention.flex_attention torch.nn.functional torch.nn.init torch.nn.parallel torch.nn.utils.parametrizations
torch.nn.utils.parametrize torch.nn.utils.prune torch.nn.utils.rnn torch.nn.utils.stateless
torch.nn.utils.spectral_norm torch.nn.utils.weight_norm torch.nn.utils.fusion torch.optim torch.optim.lr_scheduler
torch.optim.swa_utils torch.profiler torch.profiler.python_tracer torch.testing torch.fx torch.overrides torch.library
torch.utils.weak torch.utils.checkpoint torch.utils.data torch.utils.flop_counter torch.utils.module_tracker
torch.utils.benchmark torch.utils._python_dispatch torch.utils._pytree torch._subclasses.fake_tensor torch._dynamo
torch._refs torch._decomp torch._decomp.decompositions_for_jvp torch._meta_registrations torch._vmap_internals
torch.fx.experimental.symbolic_shapes torch._functorch.apis torch._functorch.eager_transforms torch._functorch.vmap
torch._functorch.functional_call torch._functorch.autograd_function torch._functorch.pyfunctorch
torch.utils.serialization
""")


class ThreadStartedError(RuntimeError):
    """A package cannot be among those that programs import: a process with threads cannot be forked safely."""


def import_all(package: str) -> None:
    """Import all of it and every experiment. Raises what an import raises, except for modules that this torch lacks.

    A half-imported module would break every child in its own way, so nothing else is forgiven.
    """
    for name in (*_PYTHON, *_TORCH):
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name:
                raise
    experiments(package)
    import_operators_packages()


def import_operators_packages() -> None:
    """What the operator lets programs import besides: einops, torchvision, also with modules (PIL.Image, PIL.*)."""
    for name in os.environ.get("LAB_PROGRAM_PACKAGES", "").replace(",", " ").split():
        _import_with_lazy_parts(name)


def _import_with_lazy_parts(name: str) -> None:
    """An operator's package, and what it would read from files at the first use of a name that it lists.

    ``name.*``: with every module below it, but for tests and programs.
    """
    whole, name = name.endswith(".*"), name.removesuffix(".*")
    before = threads()
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        return  # not installed: programs are told so
    for found in pkgutil.iter_modules(module.__path__, f"{name}.") if whole and hasattr(module, "__path__") else ():
        if found.name.rpartition(".")[2] not in ("test", "tests", "conftest", "__main__"):
            try:
                _import_with_lazy_parts(f"{found.name}.*" if found.ispkg else found.name)
            except ThreadStartedError:
                raise
            except Exception:  # noqa: BLE001 - it needs another package that is not there
                continue
    until = time.monotonic() + _LAZY_S
    for part in dir(module) if "__getattr__" in vars(module) else ():
        if time.monotonic() < until:
            with contextlib.suppress(Exception):
                getattr(module, part)
    if threads() > before:
        raise ThreadStartedError(f"{name}, of LAB_PROGRAM_PACKAGES, starts a thread when it is imported; leave it out")


def threads() -> int:
    """Of this process."""
    return len(list(Path("/proc/self/task").iterdir()))


def experiments(package: str) -> list[ModuleType]:
    """Every experiment, imported."""
    folder = importlib.import_module(package).__path__
    return [importlib.import_module(f"{package}.{found.name}") for found in pkgutil.iter_modules(folder)]


def warm_up(package: str) -> None:
    """First use of the engine, BLAS, printing, function transforms and the experiments: paid before the request comes."""
    import torch
    from torch.utils.checkpoint import checkpoint

    started = time.monotonic()
    x = torch.ones(4, 4, requires_grad=True)
    checkpoint(lambda t: (t @ t).relu(), x, use_reentrant=False).sum().backward()
    torch.nn.Linear(2, 2)(torch.ones(1, 2)).sum().backward()
    torch.func.vmap(torch.func.grad(torch.sin))(torch.ones(2))
    torch.func.jvp(torch.sin, (torch.ones(2),), (torch.ones(2),))
    repr(x.grad)
    for experiment in experiments(package):
        params_type, _ = types_of(experiment)
        knob = program_knob(params_type)
        if knob and knob.program and knob.program.wall_s <= _QUICK_S and time.monotonic() - started < _WARM_UP_S:
            with contextlib.suppress(NotAvailableError):  # the visitor of that page will be told
                experiment.explain(experiment.run(params_type(), silent))


def warm_up_cuda(visible_devices: str | None, memory_bytes: int) -> None:
    """A context, its libraries and the engine's device threads, which cannot be made inside the walls.

    Comes before the first backward pass, which counts the devices for good. ``memory_bytes``: 0 for no limit.
    """
    import torch

    del os.environ["CUDA_VISIBLE_DEVICES"]  # the zygote's, which hides all
    if visible_devices is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = visible_devices
    torch.cuda.init()
    total = torch.cuda.get_device_properties(0).total_memory
    if memory_bytes:
        torch.cuda.set_per_process_memory_fraction(min(memory_bytes / total, 1.0))
    x = torch.ones(64, 64, device="cuda", requires_grad=True)
    (x @ x).relu().sum().backward()
    torch.nn.functional.conv2d(torch.ones(1, 1, 8, 8, device="cuda"), torch.ones(1, 1, 3, 3, device="cuda"))
    torch.cuda.synchronize()
