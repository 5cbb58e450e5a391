"""One run of one visitor's program, in a process forked for it, inside the walls.

The parent sends two messages at once: what the run may use, which is read before the walls are up, and the request,
which is read behind them. Answers go back on the same socket: progress, then one answer, then the process ends.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any, NoReturn

from lab.execution import perform
from lab.execution.sealed import confine, preload, self_check
from lab.execution.sealed.frames import read_frame, write_frame

MEMORY_EXHAUSTED = 3
"""Exit status when not even the answer finds memory."""
_REPORT_EVERY_S = 0.05


def main(job_fd: int, config: dict[str, Any], order: dict[str, Any]) -> NoReturn:
    """Never returns: whatever happens, the forked process must not go on as a zygote."""
    status = 1
    try:
        confine.leave_with_parent()
        os.setsid()
        confine.keep_only(job_fd)
        _run(config, gpu=order["gpu"])
        status = 0
    except MemoryError:
        status = MEMORY_EXHAUSTED
    finally:
        os._exit(status)


def _run(config: dict[str, Any], *, gpu: bool) -> None:
    try:
        if gpu:
            preload.warm_up_cuda(config["cuda_visible_devices"], config["gpu_memory_bytes"])
        preload.warm_up(config["package"])
        allowed = read_frame(confine.JOB_FD)
        confine.confine(**allowed, gpu=gpu, layers=tuple(config["layers"]))
    except Exception as error:
        _say(kind="failed", reason=f"{type(error).__name__}: {error}"[:500])
        raise
    _say(kind="ready")
    request = read_frame(confine.JOB_FD)
    if request["kind"] == "probe":
        self_check.probe(lambda name, reached: _say(kind="probe", name=name, reached=reached))
    else:
        text = perform.answer(request["experiment"], request["params"], _reporter(), package=config["package"])
        write_frame(confine.JOB_FD, text)


def _say(**message: Any) -> None:
    write_frame(confine.JOB_FD, json.dumps(message))


def _reporter() -> perform.Tell:
    """Progress, at most every 50 ms, and every part."""
    last = 0.0

    def report(fraction: float, line: str, part: str = "") -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _REPORT_EVERY_S:
            last = now
            _say(kind="progress", fraction=fraction, line=line)
        if part:
            write_frame(confine.JOB_FD, part)

    return report
