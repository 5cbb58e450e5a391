"""The process that children for visitors' programs are forked from: ``python -m lab.execution.sealed.zygote CONTROL_FD CONFIG``.

It imports everything once, has one thread, never touches CUDA, never runs a backward pass (the first one counts
devices) and never sees a program. Over the control socket it takes one JSON message and one descriptor for each child
to make, and tells of each child's birth (with a pidfd, so that a reused process id can hit nobody) and end.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import socket
import sys
import traceback
import warnings
from typing import Any

from lab.execution.sealed import child as sealed_child
from lab.execution.sealed import confine, preload
from lab.execution.sealed.frames import CONTROL_BYTES


class Zygote:
    def __init__(self, control: socket.socket, config: dict[str, Any]) -> None:
        self.control, self.config = control, config
        self.children: dict[int, tuple[int, int]] = {}
        """pidfd -> process id, number that the parent gave the child"""

    def prepare(self) -> None:
        import torch

        warnings.simplefilter("ignore")
        torch.set_num_threads(1)
        torch.set_num_interop_threads(1)
        preload.import_all(self.config["package"])
        if (threads := preload.threads()) != 1:
            raise RuntimeError(f"{threads} threads before the first fork, where there must be one")
        gc.collect()
        gc.freeze()  # children share these pages until they write to them

    def serve(self) -> None:
        """Fork and reap until the parent hangs up."""
        while True:
            ready, _, _ = select.select([self.control, *self.children], [], [])
            for source in ready:
                if isinstance(source, int):
                    self._reap(source)
                elif not self._take_order():
                    return

    def _take_order(self) -> bool:
        message, fds, _, _ = socket.recv_fds(self.control, CONTROL_BYTES, 1)
        if not message:
            return False
        order = json.loads(message)
        pid = os.fork()
        if pid == 0:
            sealed_child.main(fds[0], self.config, order)
        os.close(fds[0])
        pidfd = os.pidfd_open(pid)
        self.children[pidfd] = pid, order["number"]
        socket.send_fds(self.control, [_message(kind="born", number=order["number"], pid=pid)], [pidfd])
        return True

    def _reap(self, pidfd: int) -> None:
        pid, number = self.children.pop(pidfd)
        _, status = os.waitpid(pid, 0)
        os.close(pidfd)
        self.control.sendall(_message(kind="gone", number=number, status=os.waitstatus_to_exitcode(status)))


def _message(**body: Any) -> bytes:
    return json.dumps(body).encode()


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    zygote = Zygote(control, json.loads(sys.argv[2]))
    try:
        if reason := confine.why_not():
            raise RuntimeError(reason)
        zygote.prepare()
    except BaseException as error:  # noqa: BLE001 - the operator and the page must learn why there are no programs
        control.sendall(_message(kind="failed", reason=f"{type(error).__name__}: {error}"[:500]))
        traceback.print_exc()
        raise SystemExit(1) from None
    control.sendall(_message(kind="up", pid=os.getpid()))
    with contextlib.suppress(ConnectionError):  # the parent is gone
        zygote.serve()
    os._exit(0)  # its children end with it: no time for a tidy interpreter


if __name__ == "__main__":
    main()
