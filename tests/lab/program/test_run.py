"""A typed program: what is refused beforehand, how every ending is told, what it leaves behind."""

from __future__ import annotations

import logging
import math
import os
import random
import re
import sys
import time
from typing import Any

import pytest
import torch

from lab import wire
from lab.contract import ParamsError
from lab.execution.sealed import preload
from lab.experiments.autograd_graph import Params
from lab.program.run import FILE, IMPORTS, Ran, namespace, run_program, torch_defaults, variables
from lab.program.source import STANDARD
from lab.records.program import Warned


def go(code: str, *, wall_s: float = 4.0, printed_bytes: int = 1000) -> Ran:
    return run_program(code, namespace(), wall_s=wall_s, printed_bytes=printed_bytes)


def ending(code: str, **limits: Any) -> tuple[str, str, int | None]:
    ended = go(code, **limits).ended
    assert ended is not None
    return ended.type, ended.message, ended.line


SYNTAX = {
    "a bracket": ("x = 1\ny = (2\n", 2, "^"),
    "a colon": ("if True\n    pass\n", 1, "^"),
    "an indent": ("x = 1\n   y = 2\n", 2, "unexpected indent"),
    "a tab": ("if True:\n\tx = 1\n        y = 2\n", 3, "inconsistent use of tabs"),
    "a text": ("x = 1\ny = 'abc\n", 2, "^"),
    "return outside": ("x = 1\nreturn x\n", 2, "'return' outside function"),
    "a keyword": ("class = 3\n", 1, "^"),
    "await outside": ("x = 1\nawait x\n", 2, "outside function"),
    "a future": ("x = 1\nfrom __future__ import annotations\n", 2, "beginning of the file"),
    "break outside": ("x = 1\n\nbreak\n", 3, "'break' outside loop"),
    "nonlocal": ("nonlocal x\n", 1, "nonlocal"),
}


@pytest.mark.parametrize("title", SYNTAX)
def test_syntax_errors_have_line_and_caret(title: str) -> None:
    code, line, words = SYNTAX[title]
    kind, message, at = ending(code)
    assert kind in ("SyntaxError", "IndentationError", "TabError")
    assert at == line
    assert words in message
    assert code.splitlines()[line - 1].strip() in message
    assert "lab" not in message


def test_the_caret_stands_under_the_fault() -> None:
    _, message, _ = ending("x = 1\ny = 3 $ 4\n")
    source, caret = message.splitlines()[-2:]
    assert source[caret.index("^")] == "$"


@pytest.mark.parametrize(
    ("code", "kind", "line"),
    [
        ("x = 1\n1 / 0\n", "ZeroDivisionError", 2),
        ("def f():\n    return {}['k']\n\nf()\n", "KeyError", 2),
        ("x = 1\nassert x == 2, 'no'\n", "AssertionError", 2),
        ("y = (1 +\n     undefined +\n     2)\n", "NameError", 2),
        ("import torch\ntorch.ones(2) @ torch.ones(3)\n", "RuntimeError", 2),
        ("x = 1\nraise SystemExit(3)\n", "SystemExit", 2),
        ("exit()\n", "SystemExit", 1),
        ("x = 1\nraise KeyboardInterrupt\n", "KeyboardInterrupt", 2),
        ("class Odd(BaseException): pass\nraise Odd('gone')\n", "Odd", 2),
        ("raise GeneratorExit\n", "GeneratorExit", 1),
        ("class Mute(Exception):\n    def __str__(self): raise ValueError('x')\nraise Mute\n", "Mute", 3),
        ("def f(): f()\nf()\n", "RecursionError", 1),
        ("def g():\n    yield 1\n    raise ValueError('in a generator')\nfor v in g():\n    pass\n", "ValueError", 3),
        ("@nothing\ndef f(): pass\n", "NameError", 1),
        ("class A:\n    x = 1\n    y = z\n", "NameError", 3),
        ("try:\n    1 / 0\nfinally:\n    x = 2\n", "ZeroDivisionError", 2),
        ("raise ExceptionGroup('many', [ValueError(1), TypeError(2)])\n", "ExceptionGroup", 1),
        ("x = 1\n\n[][3]\n", "IndexError", 3),
        ("raise ValueError('\\ud800')\n", "ValueError", 1),
        ("raise ValueError('x' * 100_000)\n", "ValueError", 1),
    ],
)
def test_every_ending_has_a_type_and_a_line(code: str, kind: str, line: int) -> None:
    got, message, at = ending(code)
    assert (got, at) == (kind, line)
    assert len(message) <= 4000
    wire.loads(wire.dumps(message))


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import requests\n", "no network"),
        ("from tqdm import tqdm\n", "progress bar"),
        ("import einops\n", "LAB_PROGRAM_PACKAGES"),
        ("x = 1\nfrom subprocess import run\n", "import subprocess"),
        ("def f():\n    import socket\n", "import socket"),
        ("from . import x\n", "import ."),
        ("open('/etc/passwd')\n", "no files"),
        ("input()\n", "keyboard"),
        ("breakpoint()\n", "no debugger"),
        ("x = " + "(" * 250 + "1" + ")" * 250 + "\n", "too many nested"),
        ("x = " + "-" * 150 + "1\n", "100 deep"),
        ("x = " + "+".join("1" * 3000) + "\n", "too deeply|100 deep"),
        ("x = 1\n" * 2001, "2000 lines"),
    ],
)
def test_what_is_refused(code: str, words: str) -> None:

    kind, message, _ = ending(code)
    assert kind in ("Refused", "SyntaxError")
    assert re.search(words, message)


@pytest.mark.parametrize("name", [name for name in IMPORTS if name not in ("torchviz", "__future__")])
def test_what_may_be_imported(name: str) -> None:
    assert go(f"import {name}\n").ended is None


@pytest.mark.parametrize("code", ["x = 1\x00\n", "x = '\ud800'\n", "\ud800 = 1\n", "# \udfff\n", "x = 'a\x00b'\n"])
def test_source_that_is_no_text(code: str) -> None:
    kind, message, _ = ending(code)
    assert kind == "SyntaxError"
    assert message


def test_printed_surrogates_and_bytes_reach_the_wire() -> None:
    ran = go("print('\\ud800', '\\x00', 'é', chr(0x10FFFF))\n'\\udfff'\n")
    assert ran.ended is None
    assert wire.loads(wire.dumps(ran.said.printed)) == ran.said.printed
    assert ran.said.echo == "'\\udfff'"


def test_time_limit_ends_a_loop_and_cannot_be_caught() -> None:
    started = time.monotonic()
    code = (
        "n = 0\nwhile True:\n    try:\n        while True:\n            n += 1\n    except Exception:\n        pass\n"
    )
    kind, message, line = ending(code, wall_s=0.3)
    assert kind == "TimeLimit"
    assert "0.3 s" in message
    assert line in (2, 3, 4, 5)
    assert time.monotonic() - started < 3


def test_time_limit_does_not_ring_later() -> None:
    go("x = 1\n", wall_s=0.05)
    end = time.monotonic() + 0.2
    while time.monotonic() < end:
        pass


def test_output_limit_keeps_what_was_printed() -> None:
    ran = go("for i in range(10**6):\n    print('line', i)\n", printed_bytes=100)
    assert ran.ended
    assert (ran.ended.type, ran.ended.line) == ("OutputLimit", 2)
    assert "100 bytes" in ran.ended.message
    assert len(ran.said.printed.encode()) <= 100
    assert ran.said.printed.startswith("line 0\nline 1\n")


def test_output_is_limited_in_bytes_not_in_characters() -> None:
    ran = go("print('é' * 80)\n", printed_bytes=100)
    assert ran.ended
    assert len(ran.said.printed.encode()) <= 100


@pytest.mark.parametrize(
    "code",
    [
        "torch.empty(10**15)\n",
        "raise MemoryError\n",
        "raise torch.OutOfMemoryError('CUDA out of memory')\n",
        "x = [0] * (1 << 60)\n",
    ],
)
def test_out_of_memory_has_one_name(code: str) -> None:
    assert ending(code)[0] == "MemoryLimit"


@pytest.mark.parametrize(
    ("code", "echo"),
    [
        ("1 + 1\n", "2"),
        ("x = 3\nx\n", "3"),
        ("None\n", ""),
        ("print('a')\n", ""),
        ("x = 3\n", ""),
        ("'text'\n", "'text'"),
        ("torch.ones(2)\n", "tensor([1., 1.])"),
        ("[\n 1,\n 2]\n", "[1, 2]"),
        ("'a' * 10_000\n", "'" + "a" * 3999),
        ("", ""),
        ("# only a comment\n", ""),
        ("if __name__ == '__main__':\n    x = 1\nx\n", "1"),
    ],
)
def test_the_last_expression_is_echoed(code: str, echo: str) -> None:
    ran = go(code)
    assert ran.ended is None
    assert ran.said.echo == echo


def test_a_repr_that_fails_is_a_fault_of_the_program() -> None:
    assert ending("class R:\n    def __repr__(self): raise ValueError('no text')\nR()\n") == (
        "ValueError",
        "no text",
        2,
    )


def test_warnings_have_lines() -> None:
    ran = go(
        "import warnings\nx = 1\nwarnings.warn('mine')\nfor _ in range(3):\n    warnings.warn('again', stacklevel=1)\n"
    )
    assert ran.said.warned == (Warned("mine", 3), Warned("again", 5))
    assert go("import warnings\nfor i in range(100):\n    warnings.warn(str(i))\n").said.warned[-1] == Warned("49", 3)
    assert go("import warnings\nwarnings.warn('old', DeprecationWarning)\n").said.warned == (Warned("old", 2),)
    assert go("x = torch.ones(1, requires_grad=True)\ny = x * 2\n\ny.grad\n").said.warned[0].line == 4
    assert go("x = 1\ntorch.nn.functional.mse_loss(torch.ones(2, 1), torch.ones(2))\n").said.warned[0].line == 2


def test_a_warning_shows_the_frames_of_the_program_alone() -> None:
    ran = go(
        "def root(x):\n    return x.sqrt()\nx = torch.zeros(2, requires_grad=True)\n"
        "with torch.autograd.detect_anomaly():\n    (root(x) * 0).sum().backward()\n"
    )
    assert ran.ended
    (told,) = (w.text for w in ran.said.warned if "Traceback of forward call" in w.text)
    assert re.findall(r'File "(.*)", line (\d+)', told) == [(FILE, "5"), (FILE, "2")]
    assert "return x.sqrt()" in told


def test_what_a_program_sets_is_put_back() -> None:
    with torch_defaults(0, "cpu"):
        ran = go(
            "torch.set_default_dtype(torch.float64)\ntorch.set_grad_enabled(False)\ntorch.set_default_device('meta')\n"
            "torch.autograd.set_detect_anomaly(True)\n"
        )
        assert ran.ended is None
    assert (torch.get_default_dtype(), torch.is_grad_enabled(), torch.is_anomaly_enabled()) == (
        torch.float32,
        True,
        False,
    )
    assert torch.ones(1).device.type == "cpu"


REAL_FILE = """
from __future__ import annotations
import argparse, inspect, json, logging, math, os, sys
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
log = logging.getLogger("train")

@dataclass
class Config:
    width: int = 4

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=2)
    args = parser.parse_args()
    out = Path("runs") / datetime.now().strftime("%Y") / "log.json"
    net = nn.Linear(Config().width, 1)
    for step in range(args.steps):
        log.info("step %d of %s", step, json.dumps(vars(args)))
    print(len(sys.argv), out.suffix, os.path.basename(__file__), "def main" in inspect.getsource(main))
    os.environ["SEEN"] = "1"
    random_state = torch.rand(1)
    sys.setrecursionlimit(5000)

if __name__ == "__main__":
    main()
"""


def test_a_real_file_runs_as_it_is_and_leaves_the_process_as_it_was() -> None:
    def state() -> tuple[Any, ...]:
        root = logging.getLogger()
        return (
            list(root.handlers),
            root.level,
            list(sys.argv),
            dict(os.environ),
            sys.getrecursionlimit(),
            random.getstate(),
        )

    before, drawn = state(), torch.get_rng_state()
    with torch_defaults(0, "cpu"):
        ran = go(REAL_FILE)
    assert ran.ended is None
    assert ran.said.printed == ('INFO step 0 of {"steps": 2}\nINFO step 1 of {"steps": 2}\n1 .json <program> True\n')
    assert state() == before
    assert torch.equal(torch.get_rng_state(), drawn)
    assert logging.getLogger("train").handlers == []


def test_what_may_be_imported_is_loaded_before_the_walls_go_up() -> None:
    loaded = {name.split(".")[0] for name in preload._PYTHON + preload._TORCH}
    assert set(STANDARD) <= loaded


@pytest.mark.parametrize(
    "code", ["torch.rand(3).tolist()", "import random\nrandom.random()", "import numpy\nnumpy.random.rand(2).tolist()"]
)
def test_seeds_repeat(code: str) -> None:
    def drawn(seed: int) -> str:
        with torch_defaults(seed, "cpu"):
            return go(code).said.echo

    assert drawn(1) == drawn(1) != drawn(2)


def test_stdout_and_stderr_are_captured(capsys: pytest.CaptureFixture[str]) -> None:
    ran = go("print('out')\nimport warnings\nprint('x', end='')\n")
    assert ran.said.printed == "out\nx"
    assert capsys.readouterr() == ("", "")


def test_a_program_sees_torch_and_no_names_of_ours() -> None:
    ran = go("names = sorted(n for n in globals() if not n.startswith('__'))\n")
    assert ran.namespace["names"] == ["F", "math", "nn", "torch"]


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        ("3", 3),
        ("True", True),
        ("2.5", 2.5),
        ("-0.0", -0.0),
        ("float('nan')", "NaN"),
        ("{'a': float('inf'), 1: [-float('inf')]}", {"a": "Infinity", "1": ["-Infinity"]}),
        ("1 + 2j", "(1+2j)"),
        ("10**30", str(10**30)),
        ("torch.tensor([[1, 2]])", [[1, 2]]),
        ("torch.tensor(True)", True),
        ("torch.tensor([1+2j])", ["(1+2j)"]),
        ("torch.tensor([float('nan')])", ["NaN"]),
        ("torch.tensor(1.5, dtype=torch.bfloat16)", 1.5),
        ("torch.ones(2, 3).shape", [2, 3]),
        ("torch.float32", "torch.float32"),
        ("torch.device('cpu')", "cpu"),
        ("__import__('numpy').float32(0.5)", 0.5),
        ("__import__('numpy').arange(3)", [0, 1, 2]),
        ("__import__('numpy').int64(7)", 7),
        ("__import__('collections').OrderedDict(a=1)", {"a": 1}),
        ("__import__('collections').Counter('aab')", {"a": 2, "b": 1}),
        ("__import__('collections').namedtuple('P', 'x y')(1, 2)", [1, 2]),
        ("{1, 2}", [1, 2]),
        ("torch.zeros(2, 0)", [[], []]),
        ("object()", "<object>"),
        ("nn.Linear(1, 1)", "<Linear>"),
        ("range(3)", "<range>"),
    ],
)
def test_values_of_variables(value: str, plain: Any) -> None:
    found = variables(go(f"v = {value}\n").namespace)
    assert wire.encode(found["v"]) == plain
    if plain == -0.0:
        assert math.copysign(1, found["v"]) == -1


def test_a_large_tensor_is_summarised() -> None:
    (value,) = variables(go("v = torch.arange(2000.0)\n").namespace).values()
    assert value == {
        "shape": [2000],
        "dtype": "float32",
        "min": 0.0,
        "max": 1999.0,
        "norm": pytest.approx(math.sqrt(sum(i * i for i in range(2000)))),
    }


def test_modules_functions_classes_and_private_names_are_left_out() -> None:
    code = "import math as m\ndef f(): pass\nclass A: pass\n_p = 1\ng = lambda: 0\nx = 1\ntorch = 5\n"
    assert variables(go(code).namespace) == {"x": 1, "torch": 5}


def test_values_are_bounded() -> None:
    code = "row = [0.5] * 1000\ncube = [[row] * 1000] * 1000\nme = []\nme.append(me)\nd = {}\nd['d'] = d\nfor i in range(3000):\n    globals()[f'v{i}'] = i\n"
    started = time.monotonic()
    found = variables(go(code).namespace)
    text = wire.dumps(found)
    assert time.monotonic() - started < 3
    assert len(found) <= 1000
    assert len(text) < 1 << 20
    wire.decode(dict[str, Any], wire.loads(text))


def test_params_limit_the_program() -> None:
    Params(code="é" * (1 << 15))
    with pytest.raises(ParamsError, match=r"code has 65,538 bytes; the limit is 65,536"):
        Params(code="é" * (1 << 15) + "xy")
    with pytest.raises(ParamsError, match="seed"):
        Params(seed=-1)
    with pytest.raises(ParamsError, match="device"):
        Params(device="tpu")


def test_the_file_name_of_a_program_is_no_file() -> None:
    assert FILE.startswith("<")
    assert FILE not in sys.modules


def test_on_ones_own_machine_any_import_and_files(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "import os, subprocess\nwith open(os.devnull) as nothing:\n    print(repr(nothing.read()))\n"
    assert ending(text)[0] == "Refused"
    monkeypatch.setenv("LAB_TYPED_CODE", "trusted")
    ran = go(text)
    assert (ran.ended, ran.said.printed) == (None, "''\n")
