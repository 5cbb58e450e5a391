// The stacked areas: axes, phase bands, peak mark, cursor. One column of pixels shows the largest instant it covers.

import { byteTickText, byteTicks, bytesText, svgElement } from "../../kit/base.js"
import { createSpan, followTimeline } from "../../kit/zoom.js"

const MARGIN = { left: 5.2, right: 0.8, top: 3.4, bottom: 2.7 } // em
const FEWEST = 8 // rows in view at the nearest
const SHORT = { forward: "fwd", backward: "bwd", optimizer: "opt", zero_grad: "0" }

export class Plot {
  span = createSpan(whole => Math.min(whole, FEWEST)) // rows in view
  cursor = -1

  constructor(host, { onPick, onHover, onZoom }) {
    this.host = host
    this.svg = svgElement("svg", { class: "plot", width: "100%", height: "100%" })
    this.layers = ["grid", "bands", "areas", "lines", "marks", "cursor"].map(name => svgElement("g", { class: name }))
    this.svg.append(this.#hatching(), ...this.layers)
    host.append(this.svg)
    const row = event => this.rowAt(event.clientX - this.svg.getBoundingClientRect().left)
    const place = () => { const [left, right] = this.#inside(); return { left, width: right - left, ruler: this.top } }
    this.zoomed = followTimeline(host, this.span, place, {
      changed: onZoom,
      fit: () => { this.zoom([0, this.span.whole]); onZoom() },
      press: event => onPick(row(event)),
      drag: (_from, _to, event) => onPick(row(event)),
      click: event => onPick(row(event)),
      hover: event => onHover(row(event), event),
    })
    host.addEventListener("pointerleave", () => onHover(null))
  }

  #hatching() {
    const pattern = svgElement("pattern", { id: "hatched", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" })
    pattern.append(svgElement("line", { x1: 0, y1: 0, x2: 0, y2: 6, class: "hatch" }))
    const defs = svgElement("defs")
    defs.append(pattern)
    return defs
  }

  show(data) {
    this.data = data
    const count = data.index.length
    this.totals = Array.from({ length: count }, (_, row) => data.layers.reduce((sum, layer) => sum + layer.bytes[row], 0))
    if (this.span.whole !== count) this.span.reset(count)
  }

  /** Rows shown, end not included. */
  get range() {
    return [Math.floor(this.span.from + 1e-9), Math.ceil(this.span.to - 1e-9)]
  }

  zoom([first, end]) {
    this.span.show(first, end)
    this.paint()
  }

  /** Moves what is in view, as little as it takes, to a row. */
  reveal(row) {
    const { from, to } = this.span
    if (row < from) this.zoom([row, row + to - from])
    else if (row + 1 > to) this.zoom([row + 1 - to + from, row + 1])
  }

  rowAt(x) {
    const [first, end] = this.range, [left, right] = this.#inside()
    const at = first + Math.floor(((x - left) / (right - left)) * (end - first))
    return Math.max(first, Math.min(end - 1, at))
  }

  xOf(row) {
    const [first, end] = this.range, [left, right] = this.#inside()
    return left + ((row - first) / Math.max(1, end - first)) * (right - left)
  }

  yOf(bytes) {
    return this.bottom - (bytes / this.most) * (this.bottom - this.top)
  }

  #inside() {
    return [MARGIN.left * this.em, this.width - MARGIN.right * this.em]
  }

  paint() {
    const box = this.svg.getBoundingClientRect()
    if (!this.data || box.width < 50 || box.height < 50) return
    this.em = parseFloat(getComputedStyle(this.host).fontSize)
    this.width = box.width
    this.height = box.height
    this.top = MARGIN.top * this.em
    this.bottom = box.height - MARGIN.bottom * this.em
    const [first, end] = this.range
    const { unseen, card_bytes: card } = this.data
    const highest = this.totals.slice(first, end).reduce((most, total, i) => Math.max(most, total + (unseen ? unseen[first + i] : 0)), 1)
    this.cardShown = card <= highest * 1.6
    this.most = Math.max(highest, this.cardShown ? card : 0) * 1.04
    for (const layer of this.layers) layer.replaceChildren()
    this.#paintGrid()
    this.#paintBands()
    this.#paintAreas()
    this.#paintPeak()
    this.moveCursor(this.cursor)
  }

  // The instants that are drawn: one a column of pixels, the largest it covers.
  #columns() {
    const [first, end] = this.range, [left, right] = this.#inside()
    const columns = Math.max(1, Math.min(end - first, Math.floor(right - left)))
    const rows = []
    for (let c = 0; c < columns; c++) {
      const a = first + Math.floor((c * (end - first)) / columns), b = first + Math.floor(((c + 1) * (end - first)) / columns)
      let best = a
      for (let row = a + 1; row < b; row++) if (this.totals[row] > this.totals[best]) best = row
      rows.push([a, Math.max(b, a + 1), best])
    }
    return rows
  }

  #paintAreas() {
    const [, , areas, lines] = this.layers
    const columns = this.#columns(), below = columns.map(() => 0)
    for (const layer of this.data.layers) {
      const tops = columns.map(([, , row], c) => below[c] + layer.bytes[row])
      const up = columns.map(([a, b], c) => `L${this.xOf(a).toFixed(1)} ${this.yOf(tops[c]).toFixed(1)}H${this.xOf(b).toFixed(1)}`)
      const down = columns.map(([a, b], c) => `L${this.xOf(b).toFixed(1)} ${this.yOf(below[c]).toFixed(1)}H${this.xOf(a).toFixed(1)}`)
      const path = `M${up.join("").slice(1)}${down.reverse().join("")}Z`
      areas.append(svgElement("path", { d: path, class: "area", style: `fill: var(--${layer.hue})` }))
      tops.forEach((top, c) => (below[c] = top))
    }
    const { unseen } = this.data
    if (this.unseenShown(this.data)) {
      const high = ([a, b, row], c) => below[c] + Math.max(...unseen.slice(a, b)) * (row >= 0)
      const up = columns.map((column, c) => `L${this.xOf(column[0]).toFixed(1)} ${this.yOf(high(column, c)).toFixed(1)}H${this.xOf(column[1]).toFixed(1)}`)
      lines.append(svgElement("path", { d: `M${up.join("").slice(1)}`, class: "unseen" }))
    }
  }

  #paintGrid() {
    const [grid] = this.layers, [left, right] = this.#inside()
    for (const value of byteTicks(this.most)) {
      const y = this.yOf(value)
      grid.append(svgElement("line", { x1: left, x2: right, y1: y, y2: y }))
      grid.append(svgElement("text", { x: left - 0.5 * this.em, y: y + 0.33 * this.em, "text-anchor": "end" }, byteTickText(value, this.most)))
    }
    const [first, end] = this.range, { index } = this.data
    const wanted = Math.max(2, Math.min(8, Math.floor((right - left) / (7 * this.em))))
    for (let i = 0; i <= wanted; i++) {
      const row = Math.min(end - 1, first + Math.round((i * (end - first)) / wanted))
      const anchor = i === wanted ? "end" : i ? "middle" : "start"
      grid.append(svgElement("text", { x: this.xOf(row), y: this.bottom + 1.1 * this.em, "text-anchor": anchor }, Math.max(0, index[row]).toLocaleString("en")))
    }
    grid.append(svgElement("text", { x: (left + right) / 2, y: this.bottom + 2.3 * this.em, "text-anchor": "middle", class: "axis" }, "operation, in the order in which the dispatcher saw it"))
    if (this.cardShown) {
      const y = this.yOf(this.data.card_bytes)
      grid.append(svgElement("line", { x1: left, x2: right, y1: y, y2: y, class: "card" }))
      grid.append(svgElement("text", { x: right, y: y - 0.3 * this.em, "text-anchor": "end", class: "card-text" }, `card ${bytesText(this.data.card_bytes)}`))
    }
  }

  #paintBands() {
    const [, bands] = this.layers, { phase, step } = this.data, [first, end] = this.range
    let start = first
    const [left, right] = this.#inside()
    bands.append(svgElement("rect", { x: left, width: right - left, y: 0, height: this.top - 0.3 * this.em, class: "strip" }))
    for (let row = first + 1; row <= end; row++) {
      const same = row < end && bandOf(phase, row) === bandOf(phase, start) && step[row] === step[start]
      if (same) continue
      this.#paintBand(bands, start, row)
      start = row
    }
  }

  #paintBand(bands, start, end) {
    const { phase, step } = this.data, name = bandOf(phase, start)
    const x = this.xOf(start), width = this.xOf(end) - x
    if (name !== "start") bands.append(svgElement("rect", { x, width, y: 1.55 * this.em, height: 1.4 * this.em, class: `band band-${name}` }))
    if (start > 0 && step[start] !== step[start - 1]) bands.append(svgElement("line", { x1: x, x2: x, y1: 0, y2: this.bottom, class: "step-line" }))
    const text = [name.replace("_", " "), SHORT[name]].find(words => words && width > words.length * 0.56 * this.em + 6)
    if (name !== "start" && text) bands.append(svgElement("text", { x: x + width / 2, y: 2.6 * this.em, "text-anchor": "middle", class: "band-text" }, text))
    const firstOfStep = start === this.range[0] || step[start] !== step[start - 1] || bandOf(phase, start - 1) === "start"
    if (firstOfStep && name !== "start") bands.append(svgElement("text", { x: x + 0.3 * this.em, y: 1.1 * this.em, class: "step-text" }, `step ${step[start] + 1}`))
  }

  #paintPeak() {
    const [, , , , marks] = this.layers, { peak } = this.data, [first, end] = this.range
    if (peak.row < first || peak.row >= end) return
    const x = this.xOf(peak.row + 0.5), y = this.yOf(peak.bytes), toLeft = x > this.width / 2
    marks.append(svgElement("path", { d: `M${x} ${y - 2}l-6 -10h12z`, class: "peak" }))
    const text = svgElement("text", { x: x + (toLeft ? -10 : 10), y: y - 4, "text-anchor": toLeft ? "end" : "start", class: "peak-text" }, `peak ${bytesText(peak.bytes)}`)
    marks.append(text)
  }

  // A line one pixel above the areas would only blur their edge.
  unseenShown(data) {
    return Boolean(data.unseen) && Math.max(...data.unseen) > 0.01 * data.peak.bytes
  }

  moveCursor(row) {
    this.cursor = row
    const cursor = this.layers.at(-1)
    cursor.replaceChildren()
    if (!this.em || row < this.range[0] || row >= this.range[1]) return
    const x = this.xOf(row), width = Math.max(1.5, this.xOf(row + 1) - x)
    cursor.append(svgElement("rect", { x, width, y: this.top - 4, height: this.bottom - this.top + 4, class: "cursor-line" }))
    cursor.append(svgElement("path", { d: `M${x + width / 2} ${this.bottom}l-5 8h10z`, class: "cursor-foot" }))
  }
}

// Recomputation is a part of backward: one band.
function bandOf(phase, row) {
  const name = phase.words[phase.at[row]]
  return name === "recompute" ? "backward" : name
}
