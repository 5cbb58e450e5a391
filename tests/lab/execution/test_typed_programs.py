"""Programs behind the walls: what works there, and what ends at its line with the reason."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.execution.executor import Executor, Job
from lab.execution.sealed import preload
from lab.experiments.autograd_graph import Params
from tests.lab.execution.conftest import finish

RunProgram = Callable[[str], Job]


@pytest.fixture(scope="module")
def run() -> Iterator[RunProgram]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAB_PROGRAM_PACKAGES", "networkx, dateutil, PIL.Image, PIL.PngImagePlugin, not_installed")
        executor, visitors = Executor(typed_code="sealed"), itertools.count()
        assert executor.typed_code().available
        yield lambda code: finish(
            executor, executor.submit("autograd_graph", Params(code=code), visitor=f"v{next(visitors)}", fresh=True)
        )
        executor.close()


WORK = {
    "a thread": ("import threading\nt = threading.Thread(target=lambda: print(torch.ones(2).sum()))\nt.start(); t.join()\n", "tensor(2.)"),
    "a pool of threads": ("from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(2) as pool:\n    print(list(pool.map(abs, [-1, 2])))\n", "[1, 2]"),
    "a package": ("import networkx as nx\nprint(nx.shortest_path(nx.path_graph(4), 0, 3))\n", "[0, 1, 2, 3]"),
    "a package with lazy parts": ("from dateutil import parser\nprint(parser.parse('2020-01-02').day)\n", "2"),
    "a module of a package": ("import io\nfrom PIL import Image\nb = io.BytesIO()\nImage.new('RGB', (2, 2)).save(b, 'PNG')\nprint(b.getvalue()[1:4])\n", "b'PNG'"),
    "a file in memory": ("import io\nf = io.BytesIO()\ntorch.save(nn.Linear(1, 1).state_dict(), f)\nf.seek(0)\nprint(list(torch.load(f)))\n", "['weight', 'bias']"),
    "2,000 lines": ("x = 1\n" * 1999 + "print(x)\n", "1"),
    "64 KiB": ("#" + "x" * ((1 << 16) - 11) + "\nprint(1)\n", "1"),
}  # fmt: skip


@pytest.mark.parametrize("name", WORK)
def test_it_works(name: str, run: RunProgram) -> None:
    code, printed = WORK[name]
    result = run(code).result
    assert result.fault is None, result.fault
    assert result.printed == f"{printed}\n"


POOL = "def work(k):\n    return k\nif __name__ == '__main__':\n"
ENDS = {
    "a pool of processes": (f"from concurrent.futures import ProcessPoolExecutor\n{POOL}    with ProcessPoolExecutor(2) as pool:\n        print(list(pool.map(work, [1])))\n", 5, "one process"),
    "a process": (f"import multiprocessing as mp\n{POOL}    p = mp.Process(target=work, args=(1,))\n    p.start()\n", 6, "one process"),
    "mp.spawn": (f"import torch.multiprocessing as mp\n{POOL}    mp.spawn(work, nprocs=2)\n", 5, "one process"),
    "asyncio": ("import asyncio\nasync def main():\n    return 1\nprint(asyncio.run(main()))\n", 4, "event loop"),
    "workers of a loader": ("from torch.utils.data import DataLoader\nfor b in DataLoader([1, 2], num_workers=1):\n    print(b)\n", 2, "one process"),
    "a process group": ("import torch.distributed as dist\ndist.init_process_group('gloo')\n", 2, "several processes"),
    "a required argument": ("import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--data', required=True)\nargs = parser.parse_args()\n", 4, "needs --data"),
    "an exit with a status": ("import sys\nprint('a')\nsys.exit(3)\n", 3, "exit status 3"),
    "an exit with a text": ("print('a')\nraise SystemExit('no data')\n", 2, "with this message"),
    "2,001 lines": ("x = 1\n" * 2001, 2000, ""),
    "a part of a package that is not there": ("import networkx\nimport networkx.nothing\n", 2, "read from a file"),
}  # fmt: skip


@pytest.mark.parametrize("name", ENDS)
def test_it_ends_at_its_line_with_the_reason(name: str, run: RunProgram) -> None:
    code, line, why = ENDS[name]
    fault = run(code).result.fault
    assert fault is not None
    assert fault.line == line, fault
    assert why in fault.explanation, fault
    assert fault.repair


def test_an_exit_that_says_all_is_well_at_the_end_is_no_fault(run: RunProgram) -> None:
    result = run("import sys\ndef main():\n    print('done')\nsys.exit(main())\n").result
    assert (result.fault, result.printed) == (None, "done\n")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "trialpackage"
    (folder / "inner").mkdir(parents=True)
    (folder / "__init__.py").write_text("def __dir__(): return ['late']\ndef __getattr__(name):\n    import importlib\n    return importlib.import_module('trialpackage.' + name)\n")  # fmt: skip
    (folder / "late.py").write_text("")
    (folder / "inner" / "__init__.py").write_text("")
    (folder / "inner" / "deep.py").write_text("import not_installed\n")
    (folder / "inner" / "fine.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield folder
    for name in [name for name in sys.modules if name.startswith("trialpackage")]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("named", "there"),
    [("trialpackage", {"late"}), ("trialpackage.inner.fine", {"inner", "inner.fine"}), ("trialpackage.*", {"late", "inner", "inner.fine"})],
)  # fmt: skip
def test_what_is_read_at_first_use_is_read_before(named: str, there: set[str], package: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("LAB_PROGRAM_PACKAGES", named)
    preload.import_operators_packages()
    loaded = {name.removeprefix("trialpackage.") for name in sys.modules if name.startswith("trialpackage.")}
    assert loaded >= there
    assert named.endswith("*") or "inner.deep" not in loaded


def test_a_package_that_starts_a_thread_is_named(package: Path, monkeypatch: Any) -> None:
    (package / "inner" / "fine.py").write_text("import threading, time\nthreading.Thread(target=time.sleep, args=(2,), daemon=True).start()\n")  # fmt: skip
    monkeypatch.setenv("LAB_PROGRAM_PACKAGES", "trialpackage.inner.*")
    with pytest.raises(preload.ThreadStartedError, match=r"trialpackage.inner.fine.* starts a thread"):
        preload.import_operators_packages()
