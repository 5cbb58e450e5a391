"""A figure as a file: shapes and texts as they are seen, in plain colours, without its controls."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import pytest

from tests.browser.logic.conftest import Call

SAVE = "components/kit/save.js"
PEN = "components/kit/pen.js"
SVG = "{http://www.w3.org/2000/svg}"


def saved(call: Call, markup: str) -> ElementTree.Element:
    """The file of a figure of 300 px with this inside."""
    code = """(() => {
      const root = document.createElement("div")
      root.style.cssText = "position: absolute; left: 10px; top: 20px; width: 300px; background: rgb(10, 20, 30); color: rgb(255, 0, 0); font: 16px monospace"
      root.innerHTML = v[0]
      for (const made of root.querySelectorAll(".painted")) made.drawn = (pen, width) => { pen.fillStyle = "rgb(0 0 255 / 50%)"; pen.fillRect(1, 2, width - 2, 4) }
      document.body.append(root)
      const text = m.pictureOf(root)
      root.remove()
      return text
    })()"""
    text = call(SAVE, code, markup)
    assert "var(" not in text
    assert "class=" not in text
    return ElementTree.fromstring(text)


def texts(file: ElementTree.Element) -> list[str]:
    return [made.text or "" for made in file.iter(f"{SVG}text")]


def test_what_is_seen_is_in_the_file_and_controls_are_not(call: Call) -> None:
    file = saved(
        call,
        """<div class="bar">step 1 of 3 <button>next</button></div><b>loss &lt; 1</b> <button>Fit</button><select><option>all</option></select>
        <div style="display: none">gone</div><div style="visibility: hidden">unseen</div><table><tr><th><button>calls</button></th></tr></table>""",
    )
    assert [text.strip() for text in texts(file)] == ["loss < 1", "calls"]
    first = next(file.iter(f"{SVG}text"))
    assert (first.get("fill"), first.get("font-size"), first.get("font-weight")) == ("#ff0000", "16", "700")
    assert next(file.iter(f"{SVG}rect")).get("fill") == "#0a141e"


def test_a_wrapped_text_is_one_text_a_line(call: Call) -> None:
    words = "one two three four five six seven eight nine ten"
    file = saved(call, f"<p style='width: 120px'>{words}</p>")
    lines = texts(file)
    assert len(lines) >= 3
    assert " ".join("".join(f"{line} " for line in lines).split()) == words
    heights = [float(made.get("y", 0)) for made in file.iter(f"{SVG}text")]
    assert heights == sorted(set(heights))


def test_boxes_have_plain_colours_and_opacities(call: Call) -> None:
    file = saved(
        call,
        """<i style="display: block; height: 10px; border-radius: 3px; background: color-mix(in srgb, red 50%, transparent)"></i>
        <svg width="20" height="20"><rect width="20" height="20" style="fill: transparent; stroke: color-mix(in srgb, lime 25%, transparent)"></rect></svg>""",
    )
    ground, box, inner = list(file.iter(f"{SVG}rect"))
    assert ground.get("fill") == "#0a141e"
    assert (box.get("fill"), float(box.get("fill-opacity", 1)), box.get("rx")) == ("#ff0000", 0.5, "3")
    assert inner.get("fill") == "none"
    assert inner.get("stroke") == "#00ff00"
    assert float(inner.get("stroke-opacity", 1)) == pytest.approx(0.25, abs=0.01)


def test_what_is_scrolled_away_is_cut(call: Call) -> None:
    rows = "".join(f"<div style='height: 20px'>row {i}</div>" for i in range(50))
    file = saved(call, f"<div style='height: 60px; overflow: auto'>{rows}</div>")
    assert 3 <= len(texts(file)) <= 4
    assert float(file.get("height", 0)) == pytest.approx(60 + 2 * 16, abs=1)


def test_a_canvas_is_drawn_as_shapes(call: Call) -> None:
    file = saved(call, "<canvas class='painted' style='display: block; width: 100px; height: 20px'></canvas>")
    _, shape = list(file.iter(f"{SVG}rect"))
    assert (shape.get("width"), shape.get("fill"), shape.get("fill-opacity")) == ("98", "#0000ff", "0.5")


def test_the_pen_writes_what_a_canvas_would_paint(call: Call) -> None:
    code = """(() => {
      const group = document.createElementNS("http://www.w3.org/2000/svg", "g"), pen = new m.SvgPen(group)
      pen.strokeStyle = "red"
      pen.beginPath(); pen.moveTo(1, 2); pen.lineTo(3, 4); pen.stroke()
      pen.save(); pen.beginPath(); pen.rect(5, 6, 7, 8); pen.clip()
      pen.font = "12px serif"; pen.textAlign = "center"; pen.fillText("a < b", 9, 10)
      pen.restore(); pen.globalAlpha = 0.5; pen.fillStyle = "#0000ff"; pen.fillRect(0, 0, -1, 2)
      return group.innerHTML
    })()"""
    text = call(PEN, code)
    assert 'd="M1 2L3 4"' in text
    assert re.search(r'<svg x="5" y="6" width="7" height="8" viewBox="5 6 7 8"><text [^>]*text-anchor="middle"', text)
    assert "a &lt; b</text></svg>" in text
    assert text.endswith('<rect x="0" y="0" width="0" height="2" fill="#0000ff" fill-opacity="0.5"></rect>')
