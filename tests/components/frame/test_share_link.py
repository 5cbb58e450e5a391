"""A link brings back the state it was made from, and says what it could not use."""

from __future__ import annotations

import random
import string
from dataclasses import asdict, dataclass

import pytest

from components.frame.share_link import LEFT_OUT, LinkError, lesson_of, link_of, opened, pack, slug, unpack
from lab.contract import Lesson, Limits, check, knob


@dataclass(frozen=True)
class Params:
    code: str = knob("x = 1\n", program=Limits())
    depth: int = knob(8, low=1, high=100)
    rate: float = knob(0.1, low=0.0, high=1.0)
    bias: bool = knob(True)
    device: str = knob("cpu", choices=("cpu", "cuda"))
    clip: float | None = knob(None, low=0.0)

    def __post_init__(self) -> None:
        check(self)


def lesson(title: str, params: Params) -> Lesson:
    return Lesson("A1", title, params, "", {}, lambda r: "", lambda r: 0.0, "", "", "", "", "")


LESSONS = (lesson("A value used twice", Params(depth=9)), lesson("the default", Params()))
STATES = [
    Params(),
    Params(depth=9),
    Params(depth=1, rate=1e-7, bias=False, device="cuda", clip=0.5),
    Params(code="# ünïcode → ∂\nloss = '&=?#%+'\n", clip=0.0),
    Params(rate=0.1 + 0.2),
]


@pytest.mark.parametrize("params", STATES)
def test_round_trip(params):
    link = link_of(asdict(params), Params, LESSONS, "ag")
    back = opened(link.query, Params, LESSONS, "ag")
    assert back.values == asdict(params)
    assert not back.problems
    assert not link.left_out


def test_defaults_are_left_out_and_a_lesson_is_its_name():
    assert link_of(asdict(Params()), Params, LESSONS, "ag").query == {}
    assert link_of(asdict(Params(depth=9)), Params, LESSONS, "ag").query == {"ag-preset": "a-value-used-twice"}
    assert link_of(asdict(Params(depth=10)), Params, LESSONS, "ag").query == {"ag-depth": "10"}


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"ag-depth": "9999"}, "depth = 9999 is outside 1 to 100"),
        ({"ag-depth": "<b>"}, "depth must be a whole number"),
        ({"ag-rate": "nan"}, "rate = nan"),
        ({"ag-device": "tpu"}, "is not one of cpu, cuda"),
        ({"ag-code": "!!!"}, "damaged"),
        ({"ag-code": LEFT_OUT}, "too long"),
        ({"ag-colour": "red"}, "no control called 'colour'"),
        ({"ag-preset": "gone"}, "no preset called 'gone'"),
    ],
)
def test_what_is_wrong_is_said_and_the_default_kept(query, said):
    back = opened(query, Params, LESSONS, "ag")
    assert back.values == asdict(Params())
    assert len(back.problems) == 1
    assert said in back.problems[0]


def test_parameters_of_other_pages_are_not_ours():
    assert opened({"gf-depth": "3", "present": "1"}, Params, LESSONS, "ag").problems == ()


def test_a_program_beyond_the_limit_is_refused_with_the_numbers():
    noise = "".join(random.Random(0).choices(string.ascii_letters + string.digits, k=12_000))
    link = link_of(asdict(Params(code=noise)), Params, LESSONS, "ag")
    assert "the limit is 6,000" in link.left_out
    assert link.query == {"ag-code": LEFT_OUT}


def test_a_bomb_is_not_inflated():
    with pytest.raises(LinkError, match="longer than 1,000 bytes"):
        unpack(pack("a" * 50_000_000), 1_000)


def test_a_program_cut_short_is_noticed():
    packed = pack("x = torch.randn(3)\n" * 20)
    with pytest.raises(LinkError, match="cut short"):
        unpack(packed[: len(packed) // 4 * 2], 1_000)
    assert unpack(packed, 1_000) == "x = torch.randn(3)\n" * 20


def test_slugs():
    assert slug("sigmoid, 30 layers deep") == "sigmoid-30-layers-deep"


def test_only_an_exact_state_is_a_lesson():
    assert lesson_of(asdict(Params(depth=9)), LESSONS) is LESSONS[0]
    assert lesson_of(asdict(Params(depth=9, bias=False)), LESSONS) is None
