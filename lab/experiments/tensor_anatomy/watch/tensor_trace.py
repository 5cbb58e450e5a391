"""Every operation of a program with its line: what its result is, whose memory it has, who wrote into whose.

Three proofs tell a view from a copy: the storage of result and inputs, the version counters of the inputs before and
after, and the identity of the objects. Composite operations (``reshape``, ``contiguous``, ``to``) decide while they run,
so that only looking tells.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from lab import torch_private
from lab.experiments.tensor_anatomy.layout import overlap
from lab.experiments.tensor_anatomy.watch import arrays as numpy_side
from lab.experiments.tensor_anatomy.watch.calls import (
    EXPORTS,
    Call,
    Checks,
    Refused,
    Row,
    distinct,
    is_plain,
    short_name,
    tensors_in,
)
from lab.experiments.tensor_anatomy.watch.naming import Naming
from lab.experiments.tensor_anatomy.watch.states import State, States
from lab.instruments.describing.modules import ModulePath

ROWS, STEPS = 2_000, 1_000_000
WATCHED, THEN_EVERY = 2_500, 64
"""An operation of one line is watched so many times, then one time in so many, and whenever it raises."""
READS = {
    *("size", "stride", "dim", "ndimension", "item", "tolist", "numel", "nelement", "data_ptr", "storage_offset",),
    *("element_size", "is_contiguous", "type_as", "is_floating_point", "is_complex", "is_signed", "get_device",),
    *("__len__", "__repr__", "__format__", "__bool__", "__float__", "__int__", "__index__", "__contains__",),
    *("__hash__", "__set__", "_set_grad_enabled", "requires_grad_", "retain_grad", "backward", "register_hook",),
    *("storage", "untyped_storage", "is_inference", "is_nonzero", "equal", "allclose", "__deepcopy__", "__reduce_ex__",),
    *("has_names", "_is_view", "is_shared", "_record_function_enter_new", "_record_function_exit._RecordFunction",),
    *("_has_compatible_shallow_copy_type", "__dlpack_device__", "can_cast", "result_type", "promote_types",),
    *("is_same_size", "is_pinned", "is_tensor", "is_storage",),
}  # fmt: skip
"""They make no tensor and change none."""
VIEW_GETTERS = {"T", "mT", "H", "mH", "real", "imag", "data"}
_PASSED_THROUGH = ("watch/tensor_trace.py", "torch/overrides.py", "torch/_tensor.py")


class TensorTrace(TorchFunctionMode):
    """Use as a context manager around the program. ``scope`` is its namespace, ``file`` its file name."""

    def __init__(self, file: str, scope: Mapping[str, Any], checks: Callable[[TensorTrace], Checks]) -> None:
        super().__init__()
        self.states = States()
        self.naming = Naming(file, scope, self.states)
        self.arrays = numpy_side.Arrays()
        self.rows: list[Row] = []
        self.refusals: list[Refused] = []
        self.steps = self.made = self.skipped = 0
        self._times: dict[tuple[int, str], int] = {}
        self.broken: Exception | None = None
        """First fault of the instrument itself. The program went on."""
        self._file = file
        self._modules = ModulePath()
        self._numpy = numpy_side.heard(self._from_numpy)
        self._checks = checks(self)

    def __enter__(self) -> TensorTrace:
        self._modules.__enter__()
        self._numpy.__enter__()
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._numpy.__exit__(None, None, None)
        self._modules.__exit__()

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name == "__get__":
            name = getattr(getattr(func, "__self__", None), "__name__", "")
            if name not in VIEW_GETTERS:
                return func(*args, **kwargs)
        if name in READS or self.steps >= STEPS:
            return self._read(func, name, args, kwargs)
        watched = self._is_watched(name)
        call = self._guard(lambda: self._begin(func, name, args, kwargs)) if watched else None
        try:
            result = func(*args, **kwargs)
        except Exception as error:
            told = error
            call = call or self._guard(lambda: self._begin(func, name, args, kwargs))
            if call is not None:
                self._guard(lambda: self._refused(call, told))
            raise
        if call is not None:
            self._guard(lambda: self._end(call, result))
        return result

    def _is_watched(self, name: str) -> bool:
        """An operation in a long loop is watched now and then: a program of many steps has to come to its end."""
        line = self.line()
        if line is None:
            return False
        count = self._times[line, name] = self._times.get((line, name), 0) + 1
        self.skipped += count > WATCHED and count % THEN_EVERY != 0
        return count <= WATCHED or count % THEN_EVERY == 0

    def _guard(self, look: Callable[[], Any]) -> Any:
        """A fault of the instrument is remembered, not raised; subclasses of the program do not hear of it."""
        try:
            with torch_private.no_subclass_functions(), torch.no_grad():
                return look()
        except Exception as error:  # noqa: BLE001
            self.broken = self.broken or error
            return None

    def line(self) -> int | None:
        """Of the program, innermost."""
        frame: types.FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename != self._file:
            frame = frame.f_back
        return frame.f_lineno if frame else None

    def _is_direct(self) -> bool:
        frame: types.FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename.endswith(_PASSED_THROUGH):
            frame = frame.f_back
        return frame is not None and frame.f_code.co_filename == self._file

    def _read(self, func: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if name in ("is_contiguous", "item"):
            call = self._guard(lambda: self._begin(func, name, args, kwargs))
            try:
                result = func(*args, **kwargs)
            except Exception as error:
                if call is not None:
                    told = error
                    self._guard(lambda: self._refused(call, told))
                raise
            if call is not None:
                self._guard(lambda: self._checks.end(call, [], result))
            return result
        return func(*args, **kwargs)

    def _begin(self, func: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
        line = self.line()
        if line is None:
            return None
        self.steps += 1
        self.states.clock = self.steps
        self.naming.look(len(self.rows), line)
        if self.arrays.shared:
            self.arrays.compare(line)
        inputs = []
        for tensor in tensors_in((*args, *kwargs.values())):
            state = self.states.of(tensor, line)
            self.naming.name(tensor, state)
            state.used = self.states.clock
            inputs.append((tensor, state, torch_private.version(tensor)))
        call = Call(
            func, short_name(name), line, self._modules.current() or "", args, kwargs, inputs, self._is_direct()
        )
        self._checks.begin(call)
        return call

    def _end(self, call: Call, result: Any) -> None:
        if call.op in EXPORTS and numpy_side.is_array(result):
            self._exported(call, result)
        written = [(t, state) for t, state, version in call.inputs if torch_private.version(t) != version]
        results = tensors_in((result,))[:16]
        rows = [self._row(call, t, written, (number, len(results))) for number, t in enumerate(results)]
        seen = {id(t) for t in results}
        rows += [self._row(call, t, written, (0, 1)) for t, _ in distinct(written)[:16] if id(t) not in seen]
        if written and self.arrays.shared:
            self.arrays.written({state.storage for _, state in written})
        self._imported(call, results)
        self._checks.end(call, rows, result)
        self.rows.extend(rows[: max(0, ROWS - len(self.rows))])
        self.made += len(rows)

    def _row(
        self, call: Call, tensor: torch.Tensor, written: list[tuple[torch.Tensor, State]], which: tuple[int, int]
    ) -> Row:
        before = next((state for t, state, _ in call.inputs if t is tensor), None)
        strided = tensor.layout is torch.strided
        storage = self.states.storages.of(tensor).number if strided else None
        shares = self.naming.sharing(storage)
        for state in call.states:
            if state.storage == storage and storage is not None and state.name and state.name not in shares:
                shares.append(state.name)
        known = storage in self.states.births
        if before is not None:
            kind = "in place" if any(t is tensor for t, _ in written) else "same object"
            state = self.states.known(tensor) or self.states.made(
                tensor, call.line, call.op, kind, (before,), call.module
            )
            own = state.name or before.name
            if kind == "in place":
                shares = self._seen_by(state, shares)
            return Row(
                call.line,
                call.op,
                kind,
                state,
                0,
                tuple(n for n in shares if n != own),
                call.module,
                call.states,
                which,
            )
        kind = "view" if known else "new memory"
        state = self.states.made(tensor, call.line, call.op, kind, call.states, call.module)
        taken = tensor.untyped_storage().nbytes() if strided and not known and not tensor.is_meta else 0
        return Row(call.line, call.op, kind, state, taken, tuple(shares), call.module, call.states, which)

    def _seen_by(self, written: State, names: list[str]) -> list[str]:
        """Of ``names`` in this memory those that have an element of it."""
        bound = self.naming.bound
        return [name for name in names if name not in bound or overlap(written, bound[name])]

    def _refused(self, call: Call, error: Exception) -> None:
        if len(self.refusals) >= 100:
            del self.refusals[1]
        plain = tuple(value for value in (*call.args, *call.kwargs.values()) if is_plain(value))
        found = Refused(
            call.op, call.line, call.module, type(error).__name__, str(error)[:4000], call.states, plain,
        )  # fmt: skip
        for tensor, state, _ in call.inputs:
            if (
                tensor.dtype in (torch.int64, torch.int32)
                and 0 < tensor.numel() <= 1 << 20
                and tensor.device.type == "cpu"
            ):
                found.largest[state.number] = int(tensor.max())
        given = next((value for value in (*call.args, *call.kwargs.values()) if numpy_side.is_array(value)), None)
        if given is not None:
            self._describe(found, given)
        self.refusals.append(found)
        self._checks.refused(call, error)

    # NumPy.

    def _describe(self, found: Refused, array: Any) -> None:
        found.array = numpy_side.array_name(array, self.naming.scopes())
        found.array_facts = {"strides": array.strides, "dtype": str(array.dtype), "shape": array.shape}

    def _from_numpy(self, array: Any, plain: Callable[[Any], torch.Tensor]) -> torch.Tensor:
        try:
            tensor = plain(array)
        except Exception as error:
            told = error
            self._guard(lambda: self._refused_array(array, told))
            raise
        self._guard(lambda: self._given(array, tensor, "from_numpy"))
        return tensor

    def _refused_array(self, array: Any, error: Exception) -> None:
        line = self.line()
        if line is None or not numpy_side.is_array(array):
            return
        found = Refused("from_numpy", line, "", type(error).__name__, str(error)[:4000], (), ())
        self._describe(found, array)
        self.refusals.append(found)

    def _given(self, array: Any, tensor: torch.Tensor, op: str) -> None:
        line = self.line()
        if line is None:
            return
        self.naming.look(len(self.rows), line)
        state = self.states.made(tensor, line, op, "view", ())
        name = numpy_side.array_name(array, self.naming.scopes())
        if state.storage is not None:
            self.arrays.add(array, state.storage, line, name, exported=False)
        shares = (f"{name} (NumPy)",) if name else ("a NumPy array",)
        if len(self.rows) < ROWS:
            self.rows.append(Row(line, op, "view", state, 0, shares, "", ()))

    def _imported(self, call: Call, results: list[torch.Tensor]) -> None:
        """``as_tensor`` and ``asarray`` of an array share where they can."""
        if call.op not in ("as_tensor", "asarray") or len(results) != 1 or not call.args:
            return
        array, tensor = call.args[0], results[0]
        if numpy_side.is_array(array) and array.size and tensor.data_ptr() == array.ctypes.data:
            state = self.states.of(tensor)
            if state.storage is not None:
                name = numpy_side.array_name(array, self.naming.scopes())
                self.arrays.add(array, state.storage, call.line, name, exported=False)

    def _exported(self, call: Call, array: Any) -> None:
        tensor, state, _ = call.inputs[0]
        if state.storage is not None and array.size and tensor.data_ptr() == array.ctypes.data:
            self.arrays.add(array, state.storage, call.line, "", exported=True, moment=self.states.clock)

    def finish(self) -> dict[str, State]:
        """After the program: the names that are left."""
        self.naming.look(len(self.rows), None)
        if self.arrays.shared:
            self.arrays.compare(None)
        return self.naming.finish(len(self.rows))
