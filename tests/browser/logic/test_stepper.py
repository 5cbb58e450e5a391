"""The transport bar: where a step leads."""

from __future__ import annotations

from tests.browser.logic.conftest import Call

STEPPER = """(() => {
  const moves = [], host = document.createElement("div"), stepper = m.createStepper(host, at => moves.push(at))
  stepper.setCount(v[0], 0, "idle")
  const heard = v[1].map(key => stepper.key({ key }))
  stepper.stop()
  return { moves, heard, at: stepper.position, text: host.querySelector(".position").textContent,
    off: [...host.querySelectorAll("button")].filter(b => b.disabled).length }
})()"""


def test_steps_stay_between_the_first_and_the_last(call: Call) -> None:
    keys = ["ArrowLeft", "ArrowRight", "ArrowRight", "End", "ArrowRight", "x", "Home", "ArrowLeft", "ArrowRight"]
    made = call("components/kit/stepper/stepper.js", STEPPER, 3, keys)
    assert made["moves"] == [1, 2, 3, 0, 1]
    assert made["heard"] == [True] * 5 + [False] + [True] * 3
    assert (made["at"], made["text"], made["off"]) == (1, "step 1 of 3", 0)
    assert call("components/kit/stepper/stepper.js", STEPPER, 0, ["ArrowRight"]) == {
        "moves": [],
        "heard": [False],
        "at": 0,
        "text": "idle",
        "off": 5,
    }


def test_playing_starts_over_at_the_end_and_moves_at_once(call: Call) -> None:
    made = call("components/kit/stepper/stepper.js", STEPPER, 3, ["End", " "])
    assert made["moves"] == [3, 0, 1]
