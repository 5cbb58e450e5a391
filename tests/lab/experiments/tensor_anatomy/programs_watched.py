"""Programs run as the page runs them."""

from __future__ import annotations

from lab import wire
from lab.contract import Finding, silent
from lab.experiments.tensor_anatomy import Params, Result, explain, run


def watched(code: str) -> Result:
    """The result, after the trip through the wire that every result makes."""
    result = run(Params(code=code), silent)
    back = wire.decode(Result, wire.loads(wire.dumps(result)))
    assert wire.dumps(back) == wire.dumps(result)
    return back


def told(code: str) -> tuple[Finding, ...]:
    """Findings about the program, facts left out."""
    return tuple(finding for finding in explain(watched(code)) if finding.level != "fact")


def lines_named(result: Result) -> set[int]:
    """Every line that a finding or the fault points at."""
    sites = [site.line for finding in explain(result) for site in finding.sites]
    return {*sites, *(site.line for site in result.fault.sites)} if result.fault else set(sites)
