// The memory figure: builds its parts once; keeps the chosen instant while the same timeline is shown.

import { Alive } from "./alive.js"
import { Plot } from "./plot.js"
import { button, element, exactText, figureAt, paintTheme, part } from "../../kit/base.js"
import { pictureOf, saveButtons } from "../../kit/save.js"
import { createStepper } from "../../kit/stepper/stepper.js"

const FREE = -1 // none of the offered ranges: zoomed by hand

export default figureAt(".memory", root => new Figure(root))

function buildParts(root) {
  const bar = part(root, "div", "bar")
  const parts = { root, transport: part(bar, "div", "transport"), tools: part(bar, "div", "tools") }
  const panel = part(root, "div", "panel")
  const heading = part(panel, "div", "heading")
  parts.totals = part(heading, "div", "totals")
  parts.legend = part(heading, "div", "legend")
  const body = part(panel, "div", "body")
  parts.stage = part(body, "div", "stage")
  parts.stage.tabIndex = 0
  parts.stage.setAttribute("role", "img")
  parts.alive = part(body, "aside", "alive")
  parts.note = part(root, "div", "note")
  parts.tip = part(parts.stage, "div", "tip")
  parts.tip.hidden = true
  return parts
}

class Figure {
  zoomed = 0 // which of the offered ranges is in view
  frame = 0

  constructor(root) {
    const parts = (this.parts = buildParts(root))
    this.stepper = createStepper(parts.transport, position => this.choose(position - 1), "instant")
    this.plot = new Plot(parts.stage, { onPick: row => this.stepper.go(row + 1), onHover: (row, event) => this.hover(row, event), onZoom: () => this.zoomedFreely() })
    this.alive = new Alive(parts.alive)
    this.ranges = element("select", "ranges")
    this.ranges.setAttribute("aria-label", "Steps shown")
    this.ranges.addEventListener("change", () => this.zoom(this.ranges.selectedIndex))
    const peak = button("tool text", "Peak", "", () => this.toPeak())
    peak.title = "Go to the peak (m)"
    parts.tools.append(peak, this.ranges, ...saveButtons("tool text", "memory-timeline", () => pictureOf(root)))
    this.resized = new ResizeObserver(() => this.plot.paint())
    this.resized.observe(parts.stage)
    this.onKey = event => this.press(event)
    this.onPageKey = event => this.data?.presenter && event.target === document.body && this.press(event)
    root.addEventListener("keydown", this.onKey)
    document.addEventListener("keydown", this.onPageKey)
  }

  show(data) {
    const before = this.data
    paintTheme(this.parts.root, data)
    this.plot.paint()
    if (data === before) return
    this.data = data
    const { parts } = this
    parts.totals.replaceChildren(...data.title.map(text => element("span", "", text)))
    parts.legend.replaceChildren(...data.layers.map(layer => entry(layer.hue, layer.label)).reverse(), ...(this.plot.unseenShown(data) ? [entry("unseen-line", "only the allocator sees it")] : []))
    parts.stage.setAttribute("aria-label", data.description)
    parts.note.textContent = data.peak.text
    this.plot.show(data)
    this.alive.show(data)
    const steps = [...new Set(data.step)]
    this.ranges.replaceChildren(element("option", "", steps.length > 1 ? `all ${steps.length} steps` : "the step"), ...(steps.length > 1 ? steps.map(s => element("option", "", `step ${s + 1}`)) : []))
    this.part = this.ranges.appendChild(element("option", "", "a part"))
    this.part.hidden = true
    const same = before?.figure === data.figure
    const position = same ? this.stepper.position : data.peak.row + 1
    this.stepper.setCount(data.index.length, position, `${data.index.length.toLocaleString("en")} instants`)
    if (!same || this.zoomed !== FREE) this.zoom(same ? this.zoomed : 0)
    else this.zoomedFreely()
    this.choose(position - 1)
  }

  choose(row) {
    if (!this.data?.index.length) return
    const shown = Math.max(0, row), [first, end] = this.plot.range
    if (shown < first || shown >= end) this.showAlso(shown)
    this.plot.moveCursor(shown)
    this.alive.paint(shown)
  }

  toPeak() {
    this.stepper.go(this.data.peak.row + 1)
  }

  showAlso(row) {
    if (this.zoomed === FREE) this.plot.reveal(row)
    else this.zoom(0)
  }

  zoomedFreely() {
    const { from, to, whole } = this.plot.span
    this.zoomed = to - from < whole ? FREE : 0
    this.ranges.selectedIndex = this.zoomed === FREE ? this.part.index : 0
    cancelAnimationFrame(this.frame)
    this.frame = requestAnimationFrame(() => this.plot.paint())
  }

  zoom(number) {
    this.zoomed = this.ranges.selectedIndex = Math.min(number, this.part.index - 1)
    const { step } = this.data, count = step.length
    const wanted = [...new Set(step)][this.zoomed - 1]
    this.plot.zoom(this.zoomed ? [step.indexOf(wanted), step.lastIndexOf(wanted) + 1] : [0, count])
  }

  hover(row, event) {
    const { tip, stage } = this.parts
    tip.hidden = row === null || !this.data?.index.length
    if (tip.hidden) return
    const { data } = this, word = column => column.words[column.at[row]]
    const lines = data.layers.filter(layer => layer.bytes[row]).map(layer => {
      const line = entry(layer.hue, layer.label)
      line.append(element("b", "", exactText(layer.bytes[row])))
      return line
    })
    const place = data.index[row] < 0 ? "before the first operation" : `${data.index[row].toLocaleString("en")} · ${word(data.op)} · ${word(data.phase)} · ${word(data.module)}`
    tip.replaceChildren(element("strong", "", exactText(this.plot.totals[row])), element("span", "", place), ...lines.reverse())
    const box = stage.getBoundingClientRect(), x = event.clientX - box.left
    tip.style.top = `${Math.max(4, Math.min(box.height - tip.offsetHeight - 4, event.clientY - box.top + 12))}px`
    tip.style.left = `${x > box.width / 2 ? Math.max(0, x - tip.offsetWidth - 14) : x + 14}px`
  }

  press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return
    const inside = event.composedPath()[0]
    if (inside.matches?.("select") || (inside.matches?.("button") && [" ", "Enter"].includes(event.key))) return
    if (inside.type === "range" && event.key !== " ") return
    if (event.key === "m") this.toPeak()
    else if (event.key === "g") this.alive.group(this.alive.grouping + 1)
    else if (/^[0-9]$/.test(event.key) && Number(event.key) < this.part.index) this.zoom(Number(event.key))
    else if (!this.stepper.key(event) && !this.plot.zoomed.key(event)) return
    event.preventDefault()
    event.stopPropagation()
  }

  end() {
    this.stepper.stop()
    this.resized.disconnect()
    document.removeEventListener("keydown", this.onPageKey)
  }
}

function entry(hue, text) {
  const item = element("span", "entry")
  const swatch = element("i", `swatch ${hue}`)
  if (hue !== "unseen-line") swatch.style.background = `var(--${hue})`
  item.append(swatch, document.createTextNode(text))
  return item
}
