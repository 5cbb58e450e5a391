// Heat map of training: canvas for the cells, the stepper for the time. See the NOTE in scene.py for the colours.

import { element, figureAt, numberText, paintTheme, part } from "../../kit/base.js"
import { pictureOf, saveButtons } from "../../kit/save.js"
import { createStepper } from "../../kit/stepper/stepper.js"

const LOSS_SHARE = 0.24
const RAMP = 60 // colours of the scale in a saved file

export default figureAt(".map", root => new TrainingMap(root))

const isNumber = value => typeof value === "number"

class TrainingMap {
  data = null
  quantity = 0

  constructor(root) {
    this.root = root
    const bar = part(root, "div", "bar")
    this.stepper = createStepper(part(bar, "div", "transport"), () => this.paint())
    const tools = part(bar, "div", "tools")
    this.choice = part(tools, "select", "choice")
    this.choice.setAttribute("aria-label", "Quantity")
    this.choice.addEventListener("change", () => {
      this.quantity = this.choice.selectedIndex
      this.paint()
    })
    this.field = part(root, "div", "field")
    this.field.tabIndex = 0
    this.field.setAttribute("role", "img")
    tools.append(...saveButtons("tool text", "training-map", () => pictureOf(root)))
    this.canvas = part(this.field, "canvas", "")
    this.canvas.drawn = pen => this.paintOn(pen, this.layout())
    this.tip = part(this.field, "div", "tip")
    this.tip.hidden = true
    const foot = part(root, "div", "foot")
    this.said = part(foot, "span", "said")
    this.said.setAttribute("role", "status")
    const scale = part(foot, "span", "scale")
    this.low = part(scale, "span", "")
    part(scale, "span", "ramp").drawn = (pen, width, height) => this.paintRamp(pen, width, height)
    this.high = part(scale, "span", "")
    this.green = part(foot, "span", "")
    const bad = part(foot, "span", "scale")
    bad.append(element("span", "cross", "✕"), "NaN or ∞")
    root.addEventListener("keydown", event => this.press(event))
    this.onPageKey = event => this.data?.presenter && !event.composedPath().includes(root) && this.press(event)
    document.addEventListener("keydown", this.onPageKey)
    this.field.addEventListener("pointermove", event => this.point(event))
    this.field.addEventListener("pointerleave", () => (this.tip.hidden = true))
    this.field.addEventListener("click", event => {
      const cell = this.cellAt(event)
      if (cell) this.stepper.go(cell.step + 1)
    })
    this.size = new ResizeObserver(() => this.paint())
    this.size.observe(this.field)
  }

  end() {
    this.stepper.stop()
    this.size.disconnect()
    document.removeEventListener("keydown", this.onPageKey)
  }

  press(event) {
    const typing = event.target.closest?.("input:not([type=range]), select, textarea, [contenteditable]")
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return
    if (this.stepper.key(event)) event.preventDefault()
  }

  show(data) {
    const fresh = !this.data || JSON.stringify(data.loss) !== JSON.stringify(this.data.loss) || data.layers.length !== this.data.layers.length
    this.data = data
    paintTheme(this.root, data)
    this.choice.replaceChildren(...data.quantities.map(({ name }) => element("option", "", name)))
    this.choice.selectedIndex = this.quantity
    this.field.setAttribute("aria-label", data.description)
    const count = data.loss.length
    this.stepper.setCount(count, fresh ? count : this.stepper.position, `${count} steps`)
    this.paint()
  }

  // Where things are, in pixels.
  layout() {
    const { width, height } = this.field.getBoundingClientRect(), { loss, layers } = this.data
    const em = parseFloat(getComputedStyle(this.root).fontSize)
    const left = 5 * em, right = width - 0.5 * em, lossTop = 1.5 * em, gap = 2.1 * em, bottom = height - 2.8 * em
    const lossBottom = lossTop + (bottom - lossTop - gap) * LOSS_SHARE, top = lossBottom + gap
    return {
      em, width, height, left, right, lossTop, lossBottom, top, bottom,
      w: (right - left) / Math.max(loss.length, 1), h: (bottom - top) / Math.max(layers.length, 1),
    }
  }

  cellAt(event) {
    const box = this.field.getBoundingClientRect(), l = this.layout()
    const step = Math.floor((event.clientX - box.left - l.left) / l.w), row = Math.floor((l.bottom - (event.clientY - box.top)) / l.h)
    return step >= 0 && step < this.data.loss.length ? { step, row, x: event.clientX - box.left, y: event.clientY - box.top } : null
  }

  point(event) {
    const cell = this.cellAt(event), { layers, loss, quantities } = this.data
    this.tip.hidden = !cell
    if (!cell) return
    const { name, rows, reference } = quantities[this.quantity], value = rows[cell.row]?.[cell.step]
    const lines = [`step ${cell.step + 1}: loss ${numberText(loss[cell.step])}`]
    if (rows[cell.row]) {
      lines.unshift(`${layers[cell.row]}: ${name} ${numberText(value)}`)
      if (isNumber(value) && value > 0) lines.push(`10^${Math.log10(value / reference).toFixed(2).replace("-", "−")} of the reference ${numberText(reference)}`)
    }
    this.tip.textContent = lines.join("\n")
    const { width } = this.layout()
    this.tip.style.left = `${Math.max(0, Math.min(cell.x + 14, width - this.tip.offsetWidth))}px`
    this.tip.style.top = `${Math.max(0, cell.y - this.tip.offsetHeight - 10)}px`
  }

  paint() {
    if (!this.data) return
    const l = this.layout(), ratio = window.devicePixelRatio || 1
    if (!l.width || !l.height) return
    this.canvas.width = l.width * ratio
    this.canvas.height = l.height * ratio
    const draw = this.canvas.getContext("2d")
    draw.scale(ratio, ratio)
    this.paintOn(draw, l)
    this.write()
  }

  paintOn(draw, l) {
    const style = getComputedStyle(this.root)
    draw.font = `${parseFloat(style.fontSize) * 0.92}px ${style.fontFamily}`
    this.ink = style.color
    this.colours = Object.fromEntries(["vanishing", "healthy", "exploding", "fault"].map(name => [name, style.getPropertyValue(`--${name}`).trim()]))
    this.paintCells(draw, l)
    this.paintLoss(draw, l, style.getPropertyValue("--st-primary-color").trim() || this.ink)
    this.paintAxes(draw, l)
    this.paintCursor(draw, l)
  }

  paintCells(draw, l) {
    const { rows, reference, decades } = this.data.quantities[this.quantity], at = this.stepper.position
    const inset = l.w > 6 ? 0.5 : 0
    rows.forEach((values, row) => values.forEach((value, step) => {
      if (value === null || value === undefined) return
      const x = l.left + step * l.w, y = Math.round(l.bottom - (row + 1) * l.h), h = Math.round(l.bottom - row * l.h) - y
      draw.globalAlpha = step < at || !at ? 1 : 0.13
      if (!isNumber(value)) {
        draw.fillStyle = this.colours.fault
        draw.fillRect(x + inset, y, l.w - 2 * inset, h)
        if (l.h > 7 && l.w > 7) {
          draw.fillStyle = this.ink
          draw.textAlign = "center"
          draw.textBaseline = "middle"
          draw.fillText("✕", x + l.w / 2, y + l.h / 2)
        }
        return
      }
      const t = value > 0 ? Math.max(-1, Math.min(1, Math.log10(value / reference) / decades)) : -1
      draw.fillStyle = this.hue(t)
      draw.fillRect(x + inset, y, l.w - 2 * inset, h)
    }))
    draw.globalAlpha = 1
  }

  /** @param {number} t -1 vanishing, 0 healthy, 1 exploding */
  hue(t) {
    return `color-mix(in oklab, ${t < 0 ? this.colours.vanishing : this.colours.exploding} ${Math.abs(t) * 100}%, ${this.colours.healthy})`
  }

  paintRamp(pen, width, height) {
    for (let i = 0; i < RAMP; i += 1) {
      pen.fillStyle = this.hue((2 * i + 1) / RAMP - 1)
      pen.fillRect((i * width) / RAMP, 0, width / RAMP + 0.3, height)
    }
  }

  paintLoss(draw, l, colour) {
    const { loss } = this.data, at = this.stepper.position || loss.length
    const finite = loss.filter(value => isNumber(value) && value > 0)
    const low = Math.log10(Math.min(...finite, Infinity)), high = Math.log10(Math.max(...finite, -Infinity))
    const span = Math.max(high - low, 0.02), middle = (high + low) / 2
    const y = value => l.lossBottom - 4 - ((Math.log10(value) - middle) / span + 0.5) * (l.lossBottom - l.lossTop - 8)
    const line = (from, to, alpha) => {
      draw.globalAlpha = alpha
      draw.strokeStyle = colour
      draw.lineWidth = 2
      draw.beginPath()
      for (let step = from, open = false; step < to; step++) {
        if (!isNumber(loss[step]) || loss[step] <= 0) { open = false; continue }
        const x = l.left + (step + 0.5) * l.w
        draw[open ? "lineTo" : "moveTo"](x, y(loss[step]))
        open = true
      }
      draw.stroke()
    }
    line(0, loss.length, 0.2)
    line(0, at, 1)
    draw.globalAlpha = 1
    draw.fillStyle = this.ink
    draw.textAlign = "right"
    draw.textBaseline = "middle"
    if (finite.length) {
      draw.fillText(numberText(Number((10 ** high).toPrecision(3))), l.left - 6, y(10 ** high))
      if (high > low) draw.fillText(numberText(Number((10 ** low).toPrecision(3))), l.left - 6, y(10 ** low))
    }
    draw.textAlign = "center"
    loss.forEach((value, step) => { // not a number: at the top
      if (!isNumber(value) && (step === 0 || isNumber(loss[step - 1]))) draw.fillText(`✕ loss ${numberText(value)}`, Math.min(l.left + (step + 0.5) * l.w, l.right - 3 * l.em), l.lossTop - 0.6 * l.em)
    })
  }

  paintAxes(draw, l) {
    const { layers, loss } = this.data
    draw.fillStyle = this.ink
    draw.globalAlpha = 0.85
    draw.textAlign = "left"
    draw.textBaseline = "alphabetic"
    draw.fillText("loss (log)", 0, 0.9 * l.em)
    draw.fillText(`${this.data.quantities[this.quantity].name}, by layer`, 0, l.top - 0.5 * l.em)
    draw.textBaseline = "middle"
    draw.textAlign = "right"
    const every = Math.ceil((1.15 * l.em) / l.h)
    layers.forEach((name, row) => {
      if (row % every === 0) draw.fillText(name.length > 9 ? `…${name.slice(-8)}` : name, l.left - 6, l.bottom - (row + 0.5) * l.h)
    })
    draw.textAlign = "center"
    const stride = [1, 2, 5, 10, 20, 50].find(n => l.w * n > 2 * l.em) ?? 100
    loss.forEach((_, step) => {
      if ((step + 1) % stride === 0 || step === 0) draw.fillText(String(step + 1), l.left + (step + 0.5) * l.w, l.bottom + 0.8 * l.em)
    })
    draw.fillText("training step", (l.left + l.right) / 2, l.bottom + 2.1 * l.em)
    draw.globalAlpha = 1
  }

  paintCursor(draw, l) {
    const at = this.stepper.position
    if (!at) return
    draw.strokeStyle = this.ink
    draw.lineWidth = 1.5
    draw.strokeRect(l.left + (at - 1) * l.w, l.lossTop - 4, l.w, l.bottom - l.lossTop + 4)
  }

  write() {
    const { layers, loss, quantities } = this.data, { name, rows, reference, decades } = quantities[this.quantity]
    const at = this.stepper.position || 1, step = at - 1
    const known = rows.map((values, row) => [layers[row], values[step]]).filter(([, value]) => isNumber(value) && value > 0)
    const sorted = [...known].sort((a, b) => a[1] - b[1]), least = sorted[0], most = sorted.at(-1)
    const spread = least ? `, from ${numberText(least[1])} in ${least[0]} to ${numberText(most[1])} in ${most[0]}` : ""
    this.said.textContent = `Step ${at}: loss ${numberText(loss[step])}; ${name}${spread}.`
    this.green.textContent = `green: ${numberText(Number(reference.toPrecision(2)))}, ${this.data.quantities[this.quantity].green}`
    this.low.textContent = `${numberText(Number((reference / 10 ** decades).toPrecision(2)))}`
    this.high.textContent = `${numberText(Number((reference * 10 ** decades).toPrecision(2)))}`
  }
}
