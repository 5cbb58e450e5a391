"""From Run to picture in Chromium: the whole journey against a page that draws the same picture from a constant."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

from benchmarks.turns import line
from lab import wire
from lab.contract import silent
from lab.experiments import autograd_graph

ROOT = Path(__file__).resolve().parent.parent
_ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
_ROUNDS = 7
_PROGRAMS = {
    "small network": """net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
loss = net(torch.linspace(0, 0.1 * VALUE, 64).view(16, 4)).square().mean()
loss.backward()
""",
    "12 transformer blocks": """layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
model = nn.TransformerEncoder(layer, 12, enable_nested_tensor=False)
loss = model(torch.linspace(0, 1, 128).view(2, 4, 16).pow(VALUE)).sum(1).square().mean()
loss.backward()
""",
}


def measure() -> Iterator[dict[str, Any]]:
    with (
        tempfile.TemporaryDirectory() as folder,
        _server("lab/Home.py") as lab,
        _server("benchmarks/_constant_page.py") as plain,
        sync_playwright() as playwright,
    ):
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=_ARGUMENTS)
        for name, text in _PROGRAMS.items():
            yield _picture(chromium, lab, plain, Path(folder), name, text)
        chromium.close()


def _picture(chromium: Any, lab: str, plain: str, folder: Path, name: str, text: str) -> dict[str, Any]:
    file = folder / "constant.json"
    programs = [text.replace("VALUE", str(value)) for value in (1, 2)]
    results = [autograd_graph.run(autograd_graph.Params(code=code), silent) for code in programs]
    file.write_text(json.dumps({"program": programs[0], "results": wire.encode(results)}), encoding="utf-8")
    typed, constant = chromium.new_page(), chromium.new_page()
    typed.goto(f"{lab}/autograd_graph")
    typed.locator("svg .node").first.wait_for(timeout=60_000)
    constant.goto(f"{plain}/?file={file}")
    times = []
    for number in range(_ROUNDS + 2):  # the first two warm up
        typed.get_by_role("textbox", name="Program").fill(text.replace("VALUE", str(number + 3)))
        times.append((_until_new_picture(typed), _until_new_picture(constant)))
    typed.close()
    constant.close()
    ours, theirs = (statistics.median(t[side] for t in times[2:]) for side in (0, 1))
    detail = "Run to new picture: typed, run behind walls, laid out, drawn; theirs: a page with constant results"
    return line(f"Run to picture, {name}", ours, theirs, detail, better="lower")


_WATCH = """() => {
  const inside = root => [...root.querySelectorAll('*')].flatMap(e => e.shadowRoot ? [e.shadowRoot, ...inside(e.shadowRoot)] : [])
  const text = () => [document, ...inside(document)].flatMap(root => [...root.querySelectorAll('svg .node')]).map(n => n.textContent).join()
  const before = text()
  window.drawn = new Promise(done => {
    const look = () => text() && text() !== before ? done(performance.now()) : requestAnimationFrame(look)
    look()
  })
}"""


def _until_new_picture(page: Page) -> float:
    page.evaluate(_WATCH)
    started = page.evaluate("() => performance.now()")
    page.get_by_role("button", name="Run", exact=True).click()
    return (page.evaluate("() => window.drawn") - started) / 1000


@contextlib.contextmanager
def _server(script: str) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "streamlit", "run", script, "--server.address=127.0.0.1", f"--server.port={port}"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as server:
        try:
            for _ in range(300):
                with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/_stcore/health", timeout=2):
                    break
                time.sleep(0.2)
            yield url
        finally:
            server.terminate()
