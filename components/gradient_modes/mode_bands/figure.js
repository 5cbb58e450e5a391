// The lines of a program in bands of their modes; tensors as threads from the line where they were born.

import { element, figureAt, paintTheme, part, svgElement } from "../../kit/base.js"
import { colouredLines } from "../../kit/colouring.js"
import { pictureOf, saveButtons } from "../../kit/save.js"
import { createStepper } from "../../kit/stepper/stepper.js"

const MODES = [["grad", "grad mode"], ["no_grad", "no_grad"], ["inference", "inference mode"]]
const LANE = 18 // pixels

export default figureAt(".bands", root => new Figure(root))

function buildParts(root) {
  const bar = part(root, "div", "bar")
  const parts = { root, transport: part(bar, "div", "transport"), tools: part(bar, "div", "tools") }
  const heading = part(root, "div", "heading")
  parts.sentence = part(heading, "div", "sentence")
  const legend = part(heading, "div", "legend")
  for (const [mode, text] of MODES) {
    const entry = part(legend, "span", "entry")
    part(entry, "i", `swatch mode-${mode}`)
    entry.append(text)
  }
  part(legend, "span", "entry", "a thread is a tensor, from the line where it was born")
  parts.stage = part(root, "div", "stage")
  parts.stage.tabIndex = 0
  parts.stage.setAttribute("role", "group")
  parts.listing = part(parts.stage, "ol", "code")
  parts.note = part(root, "div", "note")
  parts.note.setAttribute("aria-live", "polite")
  return parts
}

class Figure {
  rows = []

  constructor(root) {
    const parts = (this.parts = buildParts(root))
    this.stepper = createStepper(parts.transport, position => this.paint(position), "step")
    parts.tools.append(...saveButtons("tool text", "mode-bands", () => pictureOf(root)))
    this.resized = new ResizeObserver(() => this.data && this.paint(this.stepper.position))
    this.resized.observe(parts.stage)
    this.onKey = event => this.press(event)
    this.onPageKey = event => this.data?.presenter && event.target === document.body && this.press(event)
    root.addEventListener("keydown", this.onKey)
    document.addEventListener("keydown", this.onPageKey)
  }

  show(data) {
    const before = this.data
    paintTheme(this.parts.root, data)
    if (data === before) return
    this.data = data
    this.parts.sentence.textContent = data.sentence
    this.parts.stage.setAttribute("aria-label", data.description)
    this.list()
    const count = data.steps.length
    const position = before?.figure === data.figure ? this.stepper.position : count
    this.stepper.setCount(count, position, "before the first step")
    this.paint(this.stepper.position)
  }

  list() {
    const { data, parts } = this
    const sites = new Map(data.sites.map(site => [site.line, site]))
    parts.listing.style.setProperty("--lanes", `${(data.threads.length + 1) * LANE}px`)
    this.rows = colouredLines(data.program.replace(/\n+$/, "")).map((pieces, index) => {
      const number = index + 1, row = element("li", "row"), band = data.bands[number], site = sites.get(number)
      const code = element("code"), stripe = element("span", "stripe")
      for (const mode of band?.modes ?? []) part(stripe, "i", `mode-${mode}`)
      if (band) {
        const tints = band.modes.map(mode => `var(--tint-${mode})`)
        row.classList.add("ran")
        row.style.background = `linear-gradient(90deg, ${tints.length > 1 ? tints : [tints, tints]})`
        row.title = `ran in ${band.modes.join(" and ")}${band.times > 1 ? `, ${band.times} times` : ""}`
        row.addEventListener("click", () => this.toLine(number))
      }
      code.append(...pieces.map(([kind, piece]) => element("span", kind, piece)))
      row.append(stripe, element("span", "number", number), code)
      const previous = data.bands[number - 1]
      if (band && String(band.modes) !== String(previous?.modes ?? "")) row.append(element("span", "mode-name", band.modes.join(" + ")))
      if (site) {
        row.classList.add("site", site.first ? "first" : "other")
        row.append(element("span", "role", site.text))
      }
      if (data.fault?.line === number) row.append(element("span", "fault-text", `${data.fault.type}: ${data.fault.message}`))
      return row
    })
    parts.listing.replaceChildren(...this.rows)
  }

  // Threads and the arrow, at the heights that the rows have now.
  drawThreads(position) {
    const { data, parts } = this
    parts.listing.querySelector("svg")?.remove()
    const last = this.rows.at(-1)
    if (!last) return
    const height = last.offsetTop + last.offsetHeight, width = (data.threads.length + 1) * LANE
    const svg = svgElement("svg", { class: "threads", width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" })
    const half = 0.85 * parseFloat(getComputedStyle(parts.listing).fontSize) // of a line of text
    const middle = line => this.rows[line - 1] ? this.rows[line - 1].offsetTop + half : 0
    const born = new Set(data.steps.slice(0, position).map(step => step.birth))
    data.threads.forEach((thread, lane) => {
      if (!born.has(thread.birth)) return
      const x = (lane + 0.5) * LANE, y = middle(thread.line), kind = `thread mode-${thread.mode}${thread.blamed ? " blamed" : ""}`
      const line = svgElement("line", { x1: x, x2: x, y1: y, y2: data.fault?.line && thread.line <= data.fault.line ? Math.max(y, middle(data.fault.line)) : height, class: kind })
      const dot = svgElement("circle", { cx: x, cy: y, r: 4.5, class: kind })
      const tip = svgElement("title")
      tip.textContent = thread.text
      dot.append(tip)
      svg.append(line, dot)
    })
    svg.append(...this.names(born, middle))
    if (data.arrow && position === data.steps.length) svg.append(...this.arrow(width, middle))
    parts.listing.append(svg)
  }

  // Left of all threads, so that none crosses it: the names of all that begin on a line, led to the first of them.
  names(born, middle) {
    const begun = this.data.threads.map((thread, lane) => ({ ...thread, lane })).filter(thread => born.has(thread.birth))
    return [...new Set(begun.map(thread => thread.line))].flatMap(line => {
      const here = begun.filter(thread => thread.line === line), all = here.map(thread => thread.name).join(", ")
      const left = 0.5 * LANE - 9, y = middle(line)
      const text = svgElement("text", { x: left, y: y + 4, class: "thread-name", "text-anchor": "end" })
      text.textContent = all.length > 20 ? all.slice(0, 19) + "…" : all
      return [svgElement("line", { x1: left + 3, x2: (here[0].lane + 0.5) * LANE, y1: y, y2: y, class: "leader" }), text]
    })
  }

  arrow(width, middle) {
    const { from, to } = this.data.arrow, x = width - LANE * 0.5, start = middle(from), end = middle(to)
    const path = svgElement("path", { class: "arrow", d: `M ${x - 10} ${start} H ${x} V ${end} H ${x - 8}` })
    const head = svgElement("path", { class: "arrow-head", d: `M ${x - 14} ${end} l 8 -5 v 10 z` })
    return [path, head]
  }

  // After the last step of a line.
  toLine(number) {
    const last = this.data.steps.findLastIndex(step => step.line === number)
    if (last >= 0) this.stepper.go(last + 1)
  }

  moveLine(by) {
    const { steps } = this.data
    let at = this.stepper.position - 1
    const line = steps[at]?.line
    while (at >= 0 && at < steps.length && steps[at].line === line) at += by
    this.stepper.go(at < 0 && by > 0 ? 1 : at + 1)
  }

  paint(position) {
    const { data, parts } = this
    const step = data.steps[position - 1]
    this.rows.forEach((row, index) => row.classList.toggle("marked", step?.line === index + 1))
    const both = step?.kind === "fault" && data.arrow ? Math.min(data.arrow.from, data.arrow.to) : step?.line
    const row = both && this.rows[both - 1]
    if (row && parts.stage.scrollHeight > parts.stage.clientHeight) {
      const above = row.offsetTop - parts.stage.scrollTop
      if (above < 0 || above > parts.stage.clientHeight - 40) parts.stage.scrollTop += above - 40
    }
    this.drawThreads(position)
    const cut = position === data.steps.length && data.cut ? ` ${data.cut.toLocaleString("en")} operations more are not kept.` : ""
    parts.note.className = `note${step ? ` mode-${step.mode}` : ""}${step?.kind === "switch" ? " switch" : ""}`
    parts.note.textContent = (step ? `Line ${step.line}. ${step.text}` : "Nothing has run yet.") + cut
  }

  press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return
    const inside = event.composedPath()[0]
    if (inside.matches?.("button") && [" ", "Enter"].includes(event.key)) return
    if (inside.type === "range" && event.key !== " ") return
    if (event.key === "ArrowDown") this.moveLine(1)
    else if (event.key === "ArrowUp") this.moveLine(-1)
    else if (!this.stepper.key(event)) return
    event.preventDefault()
    event.stopPropagation()
  }

  end() {
    this.stepper.stop()
    this.resized.disconnect()
    document.removeEventListener("keydown", this.onPageKey)
  }
}
