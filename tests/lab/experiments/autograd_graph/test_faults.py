"""Every kind of error: the line to blame, its role and the key words, wherever the program stands; healthy look-alikes are silent."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import pytest

from lab import wire
from lab.contract import Finding, apply_edits, silent
from lab.execution import perform
from lab.experiments.autograd_graph import Params, Result, explain, run
from tests.lab.experiments.autograd_graph.faulty_programs import HEALTHY, PROGRAMS


@dataclass(frozen=True)
class Kind:
    code: str
    role: str
    words: str
    told_when_caught: bool


def kinds() -> dict[str, Kind]:
    found = {}
    for part in PROGRAMS.split("\n## ")[1:]:
        head, _, code = part.partition("\n")
        name, role, words, caught = head.split(" | ")
        found[name] = Kind(code, role, words, caught == "yes")
    return found


KINDS = kinds()


def placed(code: str, how: str) -> str:
    """The program with large tensors and logging lines, in a function, in a module, or with its error caught."""
    lines = re.sub(r"\bN\b", "10_000" if how.startswith("large") else "3", code).splitlines()
    if how == "large, with logging":
        opens = ("class", "def", "@", "for", "with", "if", " ")
        lines = [part for at in lines for part in ([at] if at.startswith(opens) else [at, "print('step')"])]
    if how == "in a function":
        lines = ["def main():", *("    " + line for line in lines), "main()"]
    if how == "in a module":
        lines = ["class Outer(nn.Module):", "    def forward(self):", *("        " + at for at in lines), "Outer()()"]
    if how == "caught":
        lines = ["try:", *("    " + line for line in lines), "except Exception as error:", "    print(error)"]
    return "\n".join(lines) + "\n"


def observe(code: str) -> tuple[Result, tuple[Finding, ...]]:
    result = run(Params(code=code), silent)
    return result, explain(result)


def to_blame(program: str) -> int:
    return next(n for n, text in enumerate(program.splitlines(), 1) if "# blame" in text)


@pytest.mark.parametrize("how", ["plain", "large, with logging", "in a function", "in a module"])
@pytest.mark.parametrize("name", KINDS)
def test_the_line_to_blame_has_its_role(name: str, how: str) -> None:
    kind, program = KINDS[name], placed(KINDS[name].code, how)
    result, findings = observe(program)
    sites = {(site.line, site.role) for site in findings[0].sites}
    assert (to_blame(program), kind.role) in sites, findings[0]
    assert kind.words in findings[0].text
    if result.fault:
        assert (result.fault.explanation, result.fault.sites) == (findings[0].text, findings[0].sites)
        assert sum(finding.level == "fault" for finding in findings) == 1


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.told_when_caught])
def test_an_error_that_the_program_catches_is_told(name: str) -> None:
    kind, program = KINDS[name], placed(KINDS[name].code, "caught")
    result, findings = observe(program)
    assert result.fault is None
    told = [f for f in findings if kind.words in f.text and to_blame(program) in {site.line for site in f.sites}]
    assert told, findings


def offered(name: str) -> tuple[str, Finding] | None:
    program = placed(KINDS[name].code, "plain")
    finding = observe(program)[1][0]
    return (program, finding) if finding.edits and finding.edit_tested else None


@pytest.mark.parametrize("name", KINDS)
def test_an_edit_that_is_offered_ends_the_fault(name: str) -> None:
    found = offered(name)
    if found is None:
        assert name not in EDITED
        return
    program, finding = found
    assert name in EDITED
    edited = apply_edits(program, finding.edits)
    assert edited
    assert edited.count("# blame") == program.count("# blame") - (
        "# blame" in finding.edits[0].old and not finding.edits[0].new
    )
    result, findings = observe(edited)
    assert result.fault is None
    assert [f.title for f in findings if f.level == "fault"] == []


EDITED = {
    *("inplace relu after sigmoid out", "iadd exp", "input overwritten by mul", "view write", "unbind", "expanded"),
    *("write leaf idx", "cut item", "cut data", "freed shared", "freed growing", "nonscalar"),
    *("custom too few", "call Function", "create_graph missing", "numpy", "missing forward", "missing super"),
    *("attr error module", "gradient differentiated again", "method not called", "saved tensors taken whole"),
    "state that begins as None",
}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_look_alike_is_silent(name: str) -> None:
    result, findings = observe(HEALTHY[name])
    assert result.fault is None
    assert [f.title for f in findings if f.level in ("fault", "warning") or "was refused" in f.title] == []


PAGES: dict[str, dict[str, Any]] = {
    "autograd_graph": {},
    "gradient_flow": {"family": "own"},
    "memory_timeline": {"model": "own"},
    "op_profile": {"model": "own"},
    "train_eval": {"view": "scan", "model": "own"},
}
ON_EVERY_PAGE = (
    *(
        "iadd exp",
        "view write",
        "cut no_grad module",
        "frozen",
        "freed shared",
        "nonscalar",
        "custom too few",
        "hook number",
    ),
    *("linear", "dtype", "embedding range", "state dict size", "missing super", "none forward", "sysexit"),
)


def answer_of(page: str, code: str) -> dict[str, Any]:
    params = perform.types_of(perform.find(page))[0](code=code, **PAGES[page])
    return perform.perform(page, wire.encode(params), silent)


@pytest.mark.parametrize("name", ON_EVERY_PAGE)
def test_a_fault_has_one_explanation_and_one_card_on_every_page(name: str) -> None:
    program = placed(KINDS[name].code, "plain")
    answers = [answer_of(page, program) for page in PAGES]
    assert KINDS[name].words in answers[0]["result"]["fault"]["explanation"]
    assert len({json.dumps(answer["result"]["fault"]) for answer in answers}) == 1
    for answer in answers:
        (card,) = (f for f in answer["findings"] if f["level"] == "fault")
        assert card["text"] == answer["result"]["fault"]["explanation"]


def test_a_fault_of_the_page_itself_keeps_its_own_words() -> None:
    """The program runs; what the page asks of its model fails."""
    told = answer_of("op_profile", "model = nn.Linear(3, 1)\nbatch = torch.randn(2, 4)\n")["result"]["fault"]
    assert "3" in told["explanation"]
    assert answer_of("op_profile", "x = 1\n")["result"]["fault"]["type"] == "OwnModelError"
