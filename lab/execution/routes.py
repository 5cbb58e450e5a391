"""Which request runs where."""

from __future__ import annotations

import os
from types import ModuleType
from typing import Any

from lab import wire
from lab.contract import Fault, program_knob
from lab.execution import faults, perform
from lab.execution.host import Host, Mode, TypedCode, gpu_memory_bytes
from lab.execution.jobs import Request, Route
from lab.execution.sealed.route import SealedRoute
from lab.execution.sealed.spares import Spares
from lab.execution.workers.route import WorkerRoute


class Routes:
    """The engines of one machine: a warm worker for the lab's own runs, and one for visitors' programs, by ``mode``."""

    def __init__(
        self, mode: Mode, *, package: str, workers: int, program_slots: int, wall_s: float, layers: tuple[str, ...]
    ) -> None:
        self.mode: Mode = mode
        self.own = WorkerRoute(package=package, lane="device", workers=workers, wall_s=wall_s)
        self.trusted = self.sealed = self.gpu = None
        if mode == "trusted":
            self.trusted = WorkerRoute(
                package=package, lane="programs", workers=program_slots, wall_s=wall_s, single_use=True
            )
        elif mode != "off":
            spares = Spares(_zygote_config(package, layers), program_slots)
            self.sealed = SealedRoute(spares, package=package, slots=program_slots)
            if mode == "gpu":
                self.gpu = SealedRoute(spares, package=package, slots=1, gpu=True)

    def choose(self, module: ModuleType, params: Any) -> Route | Fault:
        """The route, or why there is none. Looks at nothing that could block."""
        if perform.is_ours(module, params):
            return self.own
        if self.trusted:
            return self.trusted
        if self.sealed is None:
            return faults.programs_off()
        if perform.device_of(params) == "cpu":
            return self.sealed
        return self.gpu or faults.programs_on_cpu_only()

    def request(self, experiment: str, params: Any, route: Route) -> Request:
        knob = program_knob(type(params))
        limits = knob.program if knob and route is not self.own else None
        return Request(experiment, params, wire.encode(params), limits, perform.device_of(params))

    def missing_device(self, request: Request) -> Fault | None:
        """Why it cannot run on the device that it asks for. May block for the first worker. Raises WorkerError."""
        if request.device == "cpu" or (host := self.host()).cuda:
            return None
        return faults.no_cuda(host.cuda_reason)

    def host(self) -> Host:
        return self.own.host()

    def typed_code(self) -> TypedCode:
        if self.sealed is None:
            off = faults.programs_off()
            return TypedCode(self.mode, self.mode != "off", "" if self.trusted else f"{off.message} {off.repair}")
        why_not = self.sealed.why_not()
        if self.gpu and not why_not and self.host().cuda:
            why_not = self.gpu.why_not()
        walls = faults.walls_missing(why_not)
        return TypedCode(self.mode, not why_not, f"{walls.message} {walls.repair}" if why_not else "")

    def all(self) -> list[Route]:
        return [route for route in (self.own, self.trusted, self.sealed, self.gpu) if route]


def _zygote_config(package: str, layers: tuple[str, ...]) -> dict[str, Any]:
    return {
        "package": package,
        "layers": layers,
        "cuda_visible_devices": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "gpu_memory_bytes": gpu_memory_bytes(),
    }
