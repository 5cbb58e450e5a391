"""The command line: ``python -m lab list | run | check``.

Exit status: 0 also when a visitor's program failed (the error is in the answer), 1 for a fault of the lab or a failed
check, 2 for bad arguments, with one line that says what is wrong, 3 where checks hold and some cannot be made here, and
4 where an experiment that checks something of the visitor's answers no: two paths that part.
"""

from __future__ import annotations

import argparse
import importlib
import json
import platform
import sys
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, NoReturn

from lab import check, wire
from lab.contract import Fault, ParamsError, headline, knobs, offers, passed, program_knob
from lab.execution.executor import Executor, Job
from lab.quantities import evidence_name, evidence_text

_FOREVER_S = 3600.0
NO = 4
"""Exit status of a check of the visitor's that does not hold."""


def main(arguments: list[str] | None = None) -> int:
    """Run one command. Returns the exit status."""
    given = _parser().parse_args(arguments)
    try:
        return given.command(given)
    except (ParamsError, OSError) as error:
        print(f"lab: {error}", file=sys.stderr)
        return 2


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        print(f"lab: {message}", file=sys.stderr)  # one line: argparse would print the usage as well
        sys.exit(2)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m lab", description="What PyTorch really does, measured.")
    commands = parser.add_subparsers(required=True, metavar="list | run | check")
    commands.add_parser("list", help="experiments, one line each").set_defaults(command=_list)
    run = commands.add_parser("run", help="run one experiment, or one request a line of a file")
    run.add_argument("name", choices=check.names(), metavar="NAME")
    run.add_argument("--set", action="append", default=[], metavar="KNOB=VALUE", dest="settings")
    run.add_argument("--code", metavar="FILE", help="a program; - reads standard input")
    run.add_argument("--batch", metavar="FILE", help="one JSON object of knobs a line; - reads standard input")
    run.add_argument("--device", choices=("cpu", "cuda"))
    run.add_argument("--json", action="store_true", help="print one JSON object")
    run.set_defaults(command=_run)
    checks = commands.add_parser("check", help="every instrument and every lesson against its oracle on this host")
    checks.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    checks.add_argument("--json", action="store_true", help="print one JSON object")
    checks.set_defaults(command=_check)
    return parser


def _experiment(name: str) -> Any:
    return importlib.import_module(f"lab.experiments.{name}")


def _list(given: argparse.Namespace) -> int:
    for name in check.names():
        print(f"{name}  {(_experiment(name).__doc__ or '').splitlines()[0]}")
    return 0


def _run(given: argparse.Namespace) -> int:
    experiment = _experiment(given.name)
    shared = _settings(given, experiment.Params)
    requests = _batch(given.batch) if given.batch else iter([{}])
    executor, status = Executor(), 0
    try:
        for request in requests:
            answer, ended = _answer(executor, given.name, experiment.Params, shared, request, bool(given.batch))
            _print(answer, as_json=given.json or bool(given.batch))
            status = status if given.batch and ended == NO else ended or status
    finally:
        executor.close()
    return status


def _settings(given: argparse.Namespace, params_type: type) -> dict[str, Any]:
    """Knob values from the command line, checked."""
    known, found = knobs(params_type), {}
    for setting in given.settings:
        name, equals, text = setting.partition("=")
        if name not in known or not equals:
            raise ParamsError(f"--set {setting}: give KNOB=VALUE with one of {', '.join(known)}")
        found[name] = known[name].parse(text)
    if given.device:
        found["device"] = known["device"].parse(given.device)
    if given.code:
        program = program_knob(params_type)
        if program is None:
            raise ParamsError(f"--code: {given.name} takes no program")
        found[program.name] = _text(given.code)
    return found


def _text(name: str) -> str:
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ParamsError(f"{name} is not UTF-8 text: {error.reason} at byte {error.start}") from None


def _batch(name: str) -> Iterator[Any]:
    """Requests of a batch file; a line that is no request gives the ParamsError itself."""
    for line in _text(name).split("\n"):  # not splitlines: a text in JSON may hold U+2028
        if line.strip():
            try:
                request = wire.loads(line)
                yield request if isinstance(request, dict) else ParamsError(f"a line is a JSON object, not {line:.60}")
            except wire.WireError as error:
                yield ParamsError(str(error))


def _answer(
    executor: Executor, name: str, params_type: type, shared: dict[str, Any], request: Any, keep_going: bool
) -> tuple[dict[str, Any], int]:
    """(what is printed for one request, exit status: 1 where the lab itself failed, NO where the experiment says no)."""
    try:
        if isinstance(request, ParamsError):
            raise request
        known = knobs(params_type)
        spoken = {k: v for k, v in request.items() if isinstance(v, str) and k in known and known[k].kind is not str}
        values = {**shared, **request, **{k: known[k].parse(v) for k, v in spoken.items()}}  # "none", as with --set
        params = wire.decode(params_type, _with_the_program(_experiment(name), values))
    except (ParamsError, wire.WireError) as error:
        if not keep_going:
            raise ParamsError(str(error)) from None
        refused = Fault("ParamsError", str(error), repair=f"Knobs: {', '.join(knobs(params_type))}.")
        return _described(name, None, error=refused), 0
    job = executor.wait(executor.submit(name, params, visitor="command line", fresh=True), _FOREVER_S)
    answer = _described(name, job, error=job.fault or getattr(job.result, "fault", None))
    no = job.result is not None and passed(_experiment(name), job.result) is False
    return answer, 1 if job.trace else NO if no else 0


def _with_the_program(experiment: Any, values: dict[str, Any]) -> dict[str, Any]:
    """A program that was given is run: where the settings leave it out, the first choice that takes one is made for it."""
    known, program = knobs(experiment.Params), program_knob(experiment.Params)
    if program is None or program.name not in values:
        return values
    whole = {name: k.default for name, k in known.items()} | values
    if set(whole) - set(known) or program.name in offers(experiment, whole):
        return values
    free = (k for name, k in known.items() if k.choices and name not in values)
    for k in free:
        for choice in k.choices:
            if program.name in offers(experiment, whole | {k.name: choice}):
                return values | {k.name: choice}
    return values


def _described(name: str, job: Job | None, *, error: Fault | None) -> dict[str, Any]:
    """One answer; ``job`` is None for a request that was never run."""
    return {
        "experiment": name,
        "params": wire.encode(job.params) if job else None,
        "device": getattr(job.params, "device", "cpu") if job else None,
        "versions": {"python": platform.python_version(), "torch": metadata.version("torch")},
        "seconds": job.seconds if job else 0.0,
        "result": wire.encode(job.result) if job else None,
        "headline": wire.encode(headline(_experiment(name), job.result)) if job and job.result else {},
        "findings": wire.encode(job.findings) if job else [],
        "error": wire.encode(error),
    }


def _print(answer: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(answer, allow_nan=False), flush=True)
        return
    print(*_words(answer), sep="\n")


def _words(answer: dict[str, Any]) -> Iterable[str]:
    """The answer for a person at a terminal: what was printed, what to notice, what went wrong."""
    result, error = answer["result"] or {}, answer["error"]
    if result.get("printed"):
        yield result["printed"].rstrip("\n")
    yield from (
        f"{evidence_name(number)}: {evidence_text(number, value)}" for number, value in answer["headline"].items()
    )
    for finding in answer["findings"]:
        line = f" (line {finding['line']})" if finding["line"] else ""
        yield f"{finding['level']}: {finding['title']}{line}\n    {finding['text']}"
        yield from (f"    line {site['line']}: {site['role']} {site['tensor']}".rstrip() for site in finding["sites"])
        if finding["repair"]:
            yield f"    {finding['repair']}"
    if error:
        line = f" on line {error['line']}" if error["line"] else ""
        yield f"{error['type']}{line}: {error['message']}"
        yield from (f"    {error[part]}" for part in ("explanation", "repair") if error[part])
    yield f"{answer['experiment']} on {answer['device']}, torch {answer['versions']['torch']}, {answer['seconds']:.3f} s"


def _check(given: argparse.Namespace) -> int:
    """0: everything holds; 1: something is wrong; 3: nothing is wrong, and something is not available here."""
    outcomes = check.run_checks(given.device)
    wrong = [outcome for outcome in outcomes if not outcome.ok and outcome.available]
    refused = [outcome for outcome in outcomes if not outcome.available]
    if given.json:
        print(wire.dumps({"device": given.device, "ok": not wrong and not refused, "checks": outcomes}))
    else:
        for outcome in outcomes:
            word = "ok    " if outcome.ok else "FAILED" if outcome.available else "NOT AVAILABLE"
            print(f"{word}  {outcome.name}{f': {outcome.detail}' if outcome.detail else ''}")
        held = sum(outcome.ok for outcome in outcomes)
        print(f"torch {metadata.version('torch')}: {held} hold, {len(wrong)} failed, {len(refused)} not available")
    return 1 if wrong else 3 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
