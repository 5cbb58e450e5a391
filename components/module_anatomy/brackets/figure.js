// Calls as brackets, hooks as marks between them; stepped in the order in which they ran.

import { button, element, figureAt, paintTheme, part } from "../../kit/base.js"
import { pictureOf, saveButtons } from "../../kit/save.js"
import { createStepper } from "../../kit/stepper/stepper.js"

export default figureAt(".brackets", root => new Figure(root))

const SIGNS = { open: "⎡", close: "⎣", point: "●" }

class Figure {
  hooksOnly = false
  shown = []

  constructor(root) {
    this.root = root
    const bar = part(root, "div", "bar")
    this.stepper = createStepper(part(bar, "div", "transport"), position => this.step(position, true), "event")
    this.only = button("tool text", "Only hooks", "Only hooks, without calls and forwards (h)", () => this.toggle())
    bar.append(this.only)
    part(bar, "span", "tools").append(...saveButtons("tool text", "hooks", () => pictureOf(root)))
    const panel = part(root, "div", "panel")
    this.heading = part(panel, "div", "heading")
    this.list = part(panel, "ol", "events")
    this.list.tabIndex = 0
    this.said = part(root, "div", "said")
    this.said.setAttribute("aria-live", "polite")
    this.note = part(root, "div", "note")
    root.addEventListener("keydown", event => this.press(event))
    this.onPageKey = event => this.data?.presenter && event.target === document.body && this.press(event)
    document.addEventListener("keydown", this.onPageKey)
    this.onLine = ({ detail }) => this.light(detail.line)
    document.addEventListener("lab-line", this.onLine)
  }

  show(data) {
    paintTheme(this.root, data)
    if (data === this.data) return
    const same = this.data?.figure === data.figure
    this.data = data
    this.heading.replaceChildren(...data.title.map(text => element("span", "", text)))
    this.note.textContent = data.note
    this.list.setAttribute("aria-label", data.description)
    this.paint(same ? this.stepper.position : 0)
  }

  paint(position) {
    const { rows } = this.data
    this.shown = rows.map((row, at) => at).filter(at => !this.hooksOnly || rows[at].mark === "point")
    this.only.setAttribute("aria-pressed", this.hooksOnly)
    let phase = ""
    const items = []
    this.items = []
    this.shown.forEach((at, k) => {
      const row = rows[at]
      if (row.phase !== phase) items.push(element("li", "phase", row.phase))
      phase = row.phase
      const item = this.item(row, k)
      this.items.push(item)
      items.push(item)
    })
    this.list.replaceChildren(...items)
    this.stepper.setCount(this.shown.length, Math.min(position, this.shown.length), `${this.shown.length.toLocaleString("en")} events`)
    this.step(this.stepper.position, false)
  }

  item(row, k) {
    const item = element("li", `event ${row.mark} ${row.by} ${row.kind.includes("backward") || row.phase === "backward" ? "back" : "ahead"}`)
    if (row.line) item.dataset.line = row.line
    item.style.setProperty("--depth", this.hooksOnly ? 0 : row.depth)
    item.append(element("span", "number", k + 1))
    const body = element("span", "body")
    for (let level = 0; level < (this.hooksOnly ? 0 : row.depth); level += 1) body.append(element("i", "rail"))
    body.append(element("span", "sign", SIGNS[row.mark]), element("span", "words", row.words))
    if (row.class && row.mark === "open") body.append(element("span", "class", row.class))
    if (row.by === "program") body.append(element("span", "tag", row.changed ? row.changed : "changes nothing"))
    if (row.by === "probe") body.append(element("span", "tag quiet", "probe"))
    item.append(body, element("span", "size", row.size), element("span", "line", row.line ? `line ${row.line}` : ""))
    item.addEventListener("click", () => this.stepper.go(k + 1))
    item.addEventListener("pointerenter", () => tell(row.line))
    item.addEventListener("pointerleave", () => tell(null))
    return item
  }

  step(position, moving) {
    const row = this.data.rows[this.shown[position - 1]]
    this.items.forEach((item, k) => {
      item.classList.toggle("now", k === position - 1)
      item.classList.toggle("later", position > 0 && k >= position)
      item.setAttribute("aria-current", k === position - 1 ? "step" : "false")
    })
    this.said.textContent = row ? row.said : this.shown.length ? "Step through the events: → and ←, or Space to play." : ""
    if (moving) tell(row?.line)
    const item = this.items[position - 1]
    if (!moving) return
    if (!item) this.list.scrollTop = 0
    else if (item.offsetTop < this.list.scrollTop + 40) this.list.scrollTop = item.offsetTop - 40
    else if (item.offsetTop + item.offsetHeight > this.list.scrollTop + this.list.clientHeight - 40) this.list.scrollTop = item.offsetTop + item.offsetHeight - this.list.clientHeight + 40
  }

  toggle() {
    const at = this.shown[this.stepper.position - 1]
    this.hooksOnly = !this.hooksOnly
    const rows = this.data.rows.map((row, k) => k).filter(k => !this.hooksOnly || this.data.rows[k].mark === "point")
    this.paint(at === undefined ? 0 : rows.findLastIndex(k => k <= at) + 1)
  }

  light(line) {
    for (const item of this.list.querySelectorAll("[data-line]")) item.classList.toggle("lit", Boolean(line) && Number(item.dataset.line) === line)
  }

  press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return
    const inside = event.composedPath()[0]
    if (inside.matches?.("button") && [" ", "Enter"].includes(event.key)) return
    if (inside.type === "range" && event.key !== " ") return
    if (event.key === "h") this.toggle()
    else if (!this.stepper.key(event)) return
    event.preventDefault()
    event.stopPropagation()
  }

  end() {
    this.stepper.stop()
    document.removeEventListener("keydown", this.onPageKey)
    document.removeEventListener("lab-line", this.onLine)
  }
}

const tell = line => document.dispatchEvent(new CustomEvent("lab-line", { detail: { line: line ?? null } }))
