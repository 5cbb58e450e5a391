// The memory figure of a program: its lines with a mark each, and the strips at the chosen operation.

import { button, element, figureAt, paintTheme, part } from "../../kit/base.js"
import { colouredLines } from "../../kit/colouring.js"
import { pictureOf, saveButtons } from "../../kit/save.js"
import { createStepper } from "../../kit/stepper/stepper.js"
import { boundAt, drawStrips } from "./strips.js"

const KINDS = [["view", "view"], ["new memory", "new memory"], ["in place", "written in place"], ["same object", "same object"]]

export default figureAt(".strips", root => new Figure(root))

const slug = kind => kind.replaceAll(" ", "-")

function buildParts(root) {
  const bar = part(root, "div", "bar")
  const parts = { root, transport: part(bar, "div", "transport"), tools: part(bar, "div", "tools") }
  const heading = part(root, "div", "heading")
  parts.sentence = part(heading, "div", "sentence")
  const legend = part(heading, "div", "legend")
  for (const [kind, text] of KINDS) {
    const entry = part(legend, "span", "entry")
    part(entry, "i", `swatch kind-${slug(kind)}`)
    entry.append(text)
  }
  const body = part(root, "div", "body")
  parts.listing = part(body, "ol", "code")
  parts.stage = part(body, "div", "stage")
  parts.stage.tabIndex = 0
  parts.stage.setAttribute("role", "group")
  parts.note = part(root, "div", "note")
  parts.note.setAttribute("aria-live", "polite")
  return parts
}

class Figure {
  rows = []

  constructor(root) {
    const parts = (this.parts = buildParts(root))
    this.stepper = createStepper(parts.transport, position => this.paint(position), "operation")
    parts.tools.append(...saveButtons("tool text", "memory-strips", () => pictureOf(root)))
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
    const { parts } = this
    parts.root.classList.toggle("with-listing", data.withListing)
    parts.sentence.textContent = data.sentence
    parts.stage.setAttribute("aria-label", data.description)
    this.list()
    const count = data.steps.length
    const position = before?.figure === data.figure ? this.stepper.position : count
    this.stepper.setCount(count, position, "before the first operation")
    this.paint(this.stepper.position)
  }

  list() {
    const { data, parts } = this
    const sites = new Map(data.sites.map(site => [site.line, site]))
    this.rows = colouredLines(data.program.replace(/\n+$/, "")).map((pieces, index) => {
      const number = index + 1, row = element("li", "row"), mark = data.marks[number], site = sites.get(number)
      const code = element("code")
      code.append(...pieces.map(([kind, piece]) => element("span", kind, piece)))
      row.append(element("span", "number", number), code)
      if (mark) {
        const facts = part(row, "span", "facts")
        facts.append(button(`chip kind-${slug(mark.kind)}`, mark.text, `line ${number}: ${mark.text}${mark.count > 1 ? `, ${mark.count} operations` : ""}. Go there`, () => this.toLine(number)))
        part(facts, "span", "shape", mark.shape)
        row.classList.add("linked")
        row.addEventListener("click", () => this.toLine(number))
      }
      if (site) {
        row.classList.add("site", site.first ? "first" : "other")
        row.append(element("span", "role", site.text))
      }
      if (data.fault?.line === number) row.append(element("span", "fault-text", `${data.fault.type}: ${data.fault.message}`))
      return row
    })
    parts.listing.replaceChildren(...this.rows)
  }

  // After the last operation of a line.
  toLine(number) {
    const last = this.data.steps.findLastIndex(step => step.line === number)
    if (last >= 0) this.stepper.go(last + 1)
  }

  moveLine(by) {
    const lines = Object.keys(this.data.marks).map(Number).sort((a, b) => a - b)
    const now = this.data.steps[this.stepper.position - 1]?.line ?? 0
    const next = by > 0 ? lines.find(line => line > now) : lines.findLast(line => line < now)
    if (next) this.toLine(next)
    else if (by < 0) this.stepper.go(0)
  }

  paint(position) {
    const { data, parts } = this
    const step = data.steps[position - 1]
    this.rows.forEach((row, index) => row.classList.toggle("marked", step?.line === index + 1))
    const row = step && this.rows[step.line - 1]
    if (row && parts.listing.scrollHeight > parts.listing.clientHeight) {
      const above = row.offsetTop - parts.listing.offsetTop - parts.listing.scrollTop
      if (above < 0 || above > parts.listing.clientHeight - 40) parts.listing.scrollTop += above - 40
    }
    const atEnd = position === data.steps.length
    drawStrips(parts.stage, data, boundAt(data.bindings, position), step, atEnd)
    const cut = atEnd && data.cut ? ` ${data.cut.toLocaleString("en")} operations more are not kept.` : ""
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
