// The memory figure: builds its parts once; keeps the chosen instant while the same timeline is shown.

const FIGURES = new WeakMap()

export default function ({ data, parentElement }) {
  let figure = FIGURES.get(parentElement)
  if (!figure) FIGURES.set(parentElement, (figure = new Figure(parentElement.querySelector(".memory"))))
  figure.show(data)
  return () => {
    figure.end()
    FIGURES.delete(parentElement)
  }
}

function buildParts(root) {
  const part = (tag, name, parent) => {
    const made = element(tag, name)
    parent.append(made)
    return made
  }
  const bar = part("div", "bar", root)
  const parts = { root, transport: part("div", "transport", bar), tools: part("div", "tools", bar) }
  const panel = part("div", "panel", root)
  const heading = part("div", "heading", panel)
  parts.totals = part("div", "totals", heading)
  parts.legend = part("div", "legend", heading)
  const body = part("div", "body", panel)
  parts.stage = part("div", "stage", body)
  parts.stage.tabIndex = 0
  parts.stage.setAttribute("role", "img")
  parts.alive = part("aside", "alive", body)
  parts.note = part("div", "note", root)
  parts.tip = part("div", "tip", parts.stage)
  parts.tip.hidden = true
  return parts
}

class Figure {
  constructor(root) {
    const parts = (this.parts = buildParts(root))
    this.stepper = createStepper(parts.transport, position => this.choose(position - 1), "instant")
    this.plot = new Plot(parts.stage, { onPick: row => this.stepper.go(row + 1), onHover: (row, event) => this.hover(row, event) })
    this.alive = new Alive(parts.alive)
    this.ranges = element("select", "ranges")
    this.ranges.setAttribute("aria-label", "Steps shown")
    this.ranges.addEventListener("change", () => this.zoom(this.ranges.selectedIndex))
    const peak = element("button", "tool text", "Peak")
    peak.type = "button"
    peak.title = "Go to the peak (m)"
    peak.addEventListener("click", () => this.toPeak())
    parts.tools.append(peak, this.ranges)
    this.resized = new ResizeObserver(() => this.plot.paint())
    this.resized.observe(parts.stage)
    this.onKey = event => this.press(event)
    this.onPageKey = event => this.data?.presenter && event.target === document.body && this.press(event)
    root.addEventListener("keydown", this.onKey)
    document.addEventListener("keydown", this.onPageKey)
  }

  show(data) {
    const before = this.data
    this.#paintTheme(data)
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
    const same = before?.figure === data.figure
    const position = same ? this.stepper.position : data.peak.row + 1
    this.stepper.setCount(data.index.length, position, `${data.index.length.toLocaleString("en")} instants`)
    this.zoom(same ? Math.max(0, this.zoomed ?? 0) : 0)
    this.choose(position - 1)
  }

  choose(row) {
    if (!this.data?.index.length) return
    const shown = Math.max(0, row), [first, end] = this.plot.range
    if (shown < first || shown >= end) this.zoom(0)
    this.plot.moveCursor(shown)
    this.alive.paint(shown)
  }

  toPeak() {
    this.stepper.go(this.data.peak.row + 1)
  }

  zoom(number) {
    this.zoomed = this.ranges.selectedIndex = Math.min(number, this.ranges.options.length - 1)
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
    else if (/^[0-9]$/.test(event.key) && Number(event.key) < this.ranges.options.length) this.zoom(Number(event.key))
    else if (!this.stepper.key(event)) return
    event.preventDefault()
    event.stopPropagation()
  }

  // The theme is read from the page: a dark background gets the dark hues.
  #paintTheme(data) {
    const { root } = this.parts
    root.classList.toggle("presenter", Boolean(data.presenter))
    root.style.setProperty("--height", `${data.height}px`)
    const [r, g, b] = (getComputedStyle(root).backgroundColor.match(/\d+(\.\d+)?/g) ?? [255, 255, 255]).map(Number)
    root.classList.toggle("dark", 0.299 * r + 0.587 * g + 0.114 * b < 128)
    this.plot?.paint()
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
