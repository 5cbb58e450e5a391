"""A process that goes on is as it was after each program, whatever that switched."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from lab.program.run import namespace, run_program, torch_defaults

SWITCHES = (
    *("torch.backends.cuda.matmul.allow_tf32 = True", "torch.backends.cudnn.allow_tf32 = False"),
    *("torch.set_float32_matmul_precision('medium')", "torch.backends.fp32_precision = 'tf32'"),
    *("torch.backends.cudnn.conv.fp32_precision = 'ieee'", "torch.backends.mkldnn.matmul.fp32_precision = 'bf16'"),
    *("torch.use_deterministic_algorithms(True, warn_only=True)", "torch.set_deterministic_debug_mode('error')"),
    *("torch.backends.cudnn.benchmark = True", "torch.backends.cudnn.deterministic = True"),
    *("torch.set_default_dtype(torch.float64)", "torch.set_default_device('meta')", "torch.set_num_threads(1)"),
    *("torch.multiprocessing.set_start_method('spawn')", "torch.multiprocessing.set_sharing_strategy('file_system')"),
    *("torch.set_grad_enabled(False)", "torch.inference_mode(True).__enter__()", "torch.set_warn_always(True)"),
    *("torch.autocast('cpu').__enter__()", "torch.set_autocast_dtype('cpu', torch.float16)"),
    *("torch.backends.mha.set_fastpath_enabled(False)", "torch.backends.opt_einsum.strategy = 'greedy'"),
    *("torch.autograd.set_multithreading_enabled(False)", "torch.autograd.set_detect_anomaly(True)"),
)


def switches() -> dict[str, Any]:
    backends = torch.backends
    return {
        "matmul": (torch.get_float32_matmul_precision(), backends.cuda.matmul.allow_tf32, backends.cudnn.allow_tf32),
        "precision": [
            getattr(holder, "fp32_precision", None)
            for holder in (
                backends,
                backends.cudnn,
                backends.mkldnn,
                *map(vars(backends.mkldnn).get, ("matmul", "conv")),
            )
        ],
        "deterministic": (
            torch.get_deterministic_debug_mode(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
            backends.cudnn.deterministic,
            backends.cudnn.benchmark,
        ),
        "defaults": (torch.get_default_dtype(), torch.get_default_device(), torch.get_num_threads()),
        "processes": (
            torch.multiprocessing.get_start_method(allow_none=True),
            torch.multiprocessing.get_sharing_strategy(),
        ),
        "gradients": (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_anomaly_enabled()),
        "autocast": (torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")),
        "open autocast regions": (torch.autocast_increment_nesting(), torch.autocast_decrement_nesting()),
        "others": (
            torch.is_warn_always_enabled(),
            backends.mha.get_fastpath_enabled(),
            backends.opt_einsum.strategy,
            torch.autograd.is_multithreading_enabled(),
        ),
    }


@pytest.mark.parametrize("line", SWITCHES)
def test_a_switch_is_put_back(line: str) -> None:
    before = switches()
    with torch_defaults(0, "cpu"):
        ran = run_program(f"{line}\nprint(torch.ones(2).sum())\n", namespace(), wall_s=5, printed_bytes=1000)
        assert ran.ended is None
    assert switches() == before


def test_the_reading_sees_a_switch() -> None:
    """Otherwise the test above would pass with anything."""
    before = switches()
    with torch_defaults(0, "cpu"):
        run_program("\n".join(SWITCHES[6:]), namespace(), wall_s=5, printed_bytes=1000)
        changed = [name for name, value in switches().items() if value != before[name]]
    assert {"deterministic", "defaults", "gradients", "processes", "autocast", "others"} <= set(changed)
