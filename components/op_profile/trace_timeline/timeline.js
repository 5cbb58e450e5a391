// The figure: a canvas with lanes, a ruler, and below it what is chosen.

import { boxesOf, sumRange } from "./boxes.js"
import { drawCurve, levelAt } from "./memory.js"
import { brightness, button, element, figureAt, isDark, signedBytes, ticks, timeText } from "../../kit/base.js"
import { pictureOf, saveButtons } from "../../kit/save.js"
import { createSpan, followTimeline } from "../../kit/zoom.js"

export default figureAt(".timeline", createFigure)

const RULER = 22, CURVE = 84, TYPE = 13.44 // pixels; TYPE is the font size at which the others hold

function createFigure(root) {
  const head = element("div", "head"), legend = element("div", "legend"), tools = element("div", "tools")
  const stage = element("div", "stage"), canvas = element("canvas", "canvas"), tip = element("div", "tip"), note = element("div", "note")
  const span = createSpan(whole => Math.max(whole * 1e-6, 2e-7))
  let boxes = null, chosen = null, hovered = null, range = null, identity = null, frame = 0, memory = { at: [], bytes: [] }
  head.append(legend, tools)
  stage.append(canvas, tip)
  stage.tabIndex = 0
  stage.setAttribute("role", "group")
  stage.setAttribute("aria-roledescription", "timeline")
  note.setAttribute("role", "status")
  tip.hidden = true
  root.append(head, stage, note)
  for (const [text, help, act] of [
    ["−", "Zoom out (S)", () => zoom.zoom(1 / 1.6)], ["+", "Zoom in (W)", () => zoom.zoom(1.6)],
    ["◂", "To the left (A)", () => zoom.pan(-0.25)], ["▸", "To the right (D)", () => zoom.pan(0.25)],
    ["Fit", "Show the whole (F)", () => fit()],
  ]) tools.append(button("tool", text, help, act))
  tools.append(...saveButtons("tool", "timeline", () => pictureOf(root)))
  canvas.drawn = paintOn

  const width = () => stage.clientWidth
  const scale = () => parseFloat(getComputedStyle(root).fontSize) / TYPE || 1
  const xOf = seconds => (seconds - span.from) / (span.to - span.from) * width()
  const hue = name => getComputedStyle(root).getPropertyValue(name).trim()
  // The chosen stretch or event; again, or without one, the whole.
  const fit = () => {
    const pad = chosen === null ? 0 : boxes.length[chosen] * 0.1, before = `${span.from} ${span.to}`
    span.show(...(range ?? (chosen === null ? [0, span.whole] : [boxes.start[chosen] - pad, boxes.start[chosen] + boxes.length[chosen] + pad])))
    if (before === `${span.from} ${span.to}`) span.show(0, span.whole)
    draw()
  }

  const zoom = followTimeline(stage, span, () => ({ left: 0, width: width(), ruler: RULER }), {
    changed: draw,
    fit,
    drag(from, to) { tip.hidden = true; choose(null, [from, to]) },
    click(event) { const [x, y] = point(event); choose(boxes.at(timeOf(x), y), null) },
    hover,
  })
  const timeOf = zoom.pointAt

  function draw() {
    cancelAnimationFrame(frame)
    frame = requestAnimationFrame(paint)
  }

  function paint() {
    if (!boxes || !width()) return
    root.classList.toggle("dark", isDark(root))
    const ratio = devicePixelRatio || 1, w = width(), h = RULER + boxes.height + (memory.at.length ? CURVE : 0)
    canvas.width = w * ratio
    canvas.height = h * ratio
    canvas.style.height = `${h}px`
    const pen = canvas.getContext("2d")
    pen.scale(ratio, ratio)
    paintOn(pen, w, h)
  }

  function paintOn(pen, w, h) {
    const style = getComputedStyle(root), ink = style.color, colours = boxes.parts.map(part => hue(`--${part.replaceAll(" ", "-")}`))
    pen.font = `${12 * scale()}px ${style.fontFamily}`
    pen.textBaseline = "middle"
    ruler(pen, w, h, ink, hue("--st-border-color"))
    boxes.lanes.forEach((lane, at) => { pen.fillStyle = ink; pen.globalAlpha = 0.75; pen.fillText(lane, 4, RULER + boxes.top[at] - boxes.gap / 2 + 2); pen.globalAlpha = 1 })
    const filled = new Map()
    for (let at = 0; at < boxes.count; at += 1) {
      const x = xOf(boxes.start[at]), x2 = xOf(boxes.start[at] + boxes.length[at])
      if (x2 < 0 || x > w) continue
      const y = RULER + boxes.y(at), left = Math.max(x, -1), wide = Math.max(Math.min(x2, w + 1) - left, 0.6)
      if (wide < 1) { const key = `${y}|${Math.round(left)}`; if (filled.has(key)) continue; filled.set(key, 1) }
      const part = boxes.part[at]
      const alpha = boxes.kind[at] === "range" ? 1 : 0.42 + 0.4 * (boxes.depth[at] % 2)
      pen.globalAlpha = alpha
      pen.fillStyle = part < 0 ? colours.at(-1) : colours[part]
      pen.fillRect(left, y, wide > 3 ? wide - 0.7 : wide, boxes.row - 2)
      pen.globalAlpha = 1
      if (wide > 34 * scale()) label(pen, boxes.label(at), left, y, wide, alpha, part < 0 ? colours.at(-1) : colours[part])
    }
    if (memory.at.length) drawCurve(pen, memory, { xOf, from: span.from, to: span.to, top: RULER + boxes.height + 18, height: CURVE - 26, width: w, ink })
    outline(pen, hovered, ink, 1)
    outline(pen, chosen, ink, 2.5)
    if (range) selection(pen, h, ink)
  }

  function ruler(pen, w, h, ink, line) {
    const { step, found } = ticks(span.from, span.to, Math.max(2, w / (110 * scale())))
    for (const at of found) {
      const x = Math.round(xOf(at)) + 0.5
      pen.strokeStyle = line
      pen.beginPath(); pen.moveTo(x, RULER - 5); pen.lineTo(x, h); pen.stroke()
      pen.fillStyle = ink
      pen.fillText(timeText(at, Math.max(step, at ? 0 : step)), Math.min(x + 3, w - 50 * scale()), 9)
    }
  }

  // Black or white, by what is behind: the colour shines through to the page as `alpha` says.
  function label(pen, text, x, y, wide, alpha, colour) {
    const short = text.replace(/^aten::/, "").replace("autograd::engine::evaluate_function: ", "")
    pen.save()
    pen.beginPath(); pen.rect(x, y, wide - 3, boxes.row); pen.clip()
    const page = root.classList.contains("dark") ? 14 : 255
    const rgb = [1, 3, 5].map(i => alpha * parseInt(colour.slice(i, i + 2), 16) + (1 - alpha) * page)
    pen.fillStyle = brightness(rgb) < 140 ? "#ffffff" : "#111827"
    pen.fillText(short, Math.max(x, 0) + 4, y + boxes.row / 2 - 0.5)
    pen.restore()
  }

  function outline(pen, at, ink, thick) {
    if (at === null) return
    const x = xOf(boxes.start[at]), x2 = xOf(boxes.start[at] + boxes.length[at])
    pen.strokeStyle = ink
    pen.lineWidth = thick
    pen.strokeRect(Math.max(x, 1), RULER + boxes.y(at), Math.max(Math.min(x2, width() - 1) - Math.max(x, 1), 2), boxes.row - 2)
    pen.lineWidth = 1
  }

  function selection(pen, h, ink) {
    const x = xOf(range[0]), x2 = xOf(range[1])
    pen.fillStyle = ink
    pen.globalAlpha = 0.1
    pen.fillRect(x, 0, x2 - x, h)
    pen.globalAlpha = 1
    pen.strokeStyle = ink
    pen.strokeRect(x + 0.5, 0.5, x2 - x, h - 1)
  }

  const describe = at => {
    const shapes = boxes.shapes(at)
    return `${boxes.label(at)}: ${timeText(boxes.length[at])}, ${timeText(Math.max(0, boxes.self[at]))} in itself, from ${timeText(boxes.start[at], span.whole)}${shapes ? `, inputs ${shapes}` : ""}`
  }

  function tell() {
    note.replaceChildren()
    note.classList.toggle("hint", !range && chosen === null)
    if (range) {
      const { inside, rows } = sumRange(boxes, ...range)
      note.append(element("b", "", `${timeText(range[1] - range[0])} chosen, ${timeText(inside)} of it inside events. Self time:`))
      const list = element("ul")
      for (const row of rows.slice(0, 6)) list.append(element("li", "", `${row.name}: ${timeText(row.seconds)} in ${row.calls} ${row.calls === 1 ? "call" : "calls"}`))
      if (rows.length > 6) list.append(element("li", "", `${rows.length - 6} more: ${timeText(rows.slice(6).reduce((t, row) => t + row.seconds, 0))}`))
      note.append(list)
    } else if (chosen !== null) note.textContent = describe(chosen)
    else note.textContent = "Drag to sum a range, click an event to choose it. Wheel, W S or a drag over the ruler zoom, A D or Shift and drag move, F fits. Colours are the parts of the step."
  }

  const point = event => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top - RULER] }
  function choose(event, stretch) {
    chosen = event
    range = stretch
    tell()
    draw()
  }
  function hover(event) {
    const [x, y] = point(event)
    hovered = y > boxes.height ? null : boxes.at(timeOf(x), y)
    const level = y > boxes.height ? levelAt(memory, timeOf(x)) : null
    tip.hidden = hovered === null && level === null
    if (!tip.hidden) {
      tip.textContent = hovered === null ? `${signedBytes(level)} since the first step began` : describe(hovered)
      tip.style.left = `${Math.max(4, Math.min(x + 12, width() - tip.offsetWidth - 4))}px`
      tip.style.top = `${y + RULER + 18 - stage.scrollTop > stage.clientHeight - 50 ? y - 30 : y + RULER + 18}px`
    }
    draw()
  }
  stage.addEventListener("pointerleave", () => { hovered = null; tip.hidden = true; draw() })
  stage.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey) return
    const keys = { Escape: () => choose(null, null), ArrowRight: () => walk(1), ArrowLeft: () => walk(-1) }
    if (keys[event.key]) keys[event.key]()
    else if (!zoom.key(event)) return
    event.preventDefault()
    event.stopPropagation()
  })

  function walk(turn) {
    range = null
    let at = chosen === null ? (turn > 0 ? -1 : boxes.count) : chosen
    do at += turn; while (at >= 0 && at < boxes.count && chosen !== null && boxes.depth[at] !== boxes.depth[chosen])
    if (at < 0 || at >= boxes.count) return
    chosen = at
    const middle = boxes.start[at] + boxes.length[at] / 2
    if (boxes.start[at] < span.from || boxes.start[at] + boxes.length[at] > span.to) span.show(middle - (span.to - span.from) / 2, middle + (span.to - span.from) / 2)
    tell()
    draw()
  }

  const watcher = new ResizeObserver(draw)
  watcher.observe(stage)
  return {
    show(data) {
      const now = `${data.start_s.length}|${data.start_s.at(-1)}|${data.duration_s[0]}|${data.duration_s.at(-1)}|${scale()}`
      stage.style.maxHeight = `${data.height}px`
      if (now === identity) return draw()
      identity = now
      boxes = boxesOf(data, scale())
      boxes.parts = data.parts
      memory = { at: data.memory_s, bytes: data.memory_bytes }
      chosen = range = hovered = null
      span.reset(Math.max(...data.start_s.map((start, at) => start + data.duration_s[at]), 1e-9))
      const used = new Set(boxes.part)
      legend.replaceChildren(...data.parts.filter((part, at) => used.has(at) || part === "rest").map(part => {
        const entry = element("span", "entry"), swatch = element("span", "swatch")
        swatch.style.background = `var(--${part.replaceAll(" ", "-")})`
        entry.append(swatch, element("span", "", part === "rest" ? "step" : part))
        return entry
      }))
      stage.setAttribute("aria-label", `Timeline of ${data.start_s.length} events in ${data.lanes.length} lanes (${data.lanes.join(", ")}), ${timeText(span.whole)} long`)
      tell()
      draw()
    },
    end() { watcher.disconnect(); cancelAnimationFrame(frame) },
  }
}
