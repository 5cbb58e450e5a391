// A foldable tree with a few marks on each row: ARIA treegrid, one row in the tab order.

import { button, element, figureAt, paintTheme, part, svgElement } from "../../kit/base.js"
import { pictureOf, saveButtons } from "../../kit/save.js"

export default figureAt(".registration", root => new Figure(root))

const SHAPES = { // drawn in a box of 16 by 16: form and filling tell the states apart, not the colour alone
  yes: [["circle", { cx: 8, cy: 8, r: 5.4, class: "filled" }]],
  half: [["path", { d: "M8 2.6a5.4 5.4 0 0 0 0 10.8z", class: "filled" }], ["circle", { cx: 8, cy: 8, r: 5.4, class: "outline" }]],
  no: [["circle", { cx: 8, cy: 8, r: 5.4, class: "outline" }], ["path", { d: "M4.2 11.8 11.8 4.2", class: "outline" }]],
  idle: [["path", { d: "M5 8h6", class: "faint" }]],
  unknown: [["text", { x: 8, y: 12, "text-anchor": "middle", class: "question" }, "?"]],
}
const LEGEND = { yes: "yes", half: "in part, or without effect", no: "no", idle: "does not apply", unknown: "not measured" }

class Figure {
  open = new Set()
  only = false
  current = 0

  constructor(root) {
    this.root = root
    this.bar = part(root, "div", "bar")
    this.onlyButton = button("tool", "Only what is not registered", "Only what is not registered (u)", () => this.toggleOnly())
    this.all = button("tool", "Open all", "Open every module (e)", () => this.foldAll(true))
    this.none = button("tool", "Close all", "Close every module (c)", () => this.foldAll(false))
    this.bar.append(this.onlyButton, this.all, this.none, element("span", "space"), ...saveButtons("tool", "module-anatomy", () => pictureOf(root)))
    const panel = part(root, "div", "panel")
    this.heading = part(panel, "div", "heading")
    this.grid = part(panel, "div", "grid")
    this.grid.setAttribute("role", "treegrid")
    this.legend = part(root, "div", "legend")
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
    if (!same) {
      this.open = new Set(data.rows.filter(row => row.open).map(row => row.id))
      this.current = 0
      this.only = false
    }
    this.heading.replaceChildren(...data.title.map(text => element("span", "", text)))
    this.note.textContent = data.note
    this.grid.setAttribute("aria-label", data.description)
    this.root.classList.toggle("without-lines", !data.rows.some(row => row.line))
    const hasModules = data.rows.some(row => row.type === "module")
    for (const tool of [this.all, this.none]) tool.hidden = !hasModules
    this.onlyButton.hidden = !data.only || !data.rows.some(row => row.hidden)
    this.legend.replaceChildren(...Object.entries(LEGEND).filter(([state]) => data.rows.some(row => row.marks.some(([kind]) => kind === state))).map(([state, text]) => {
      const entry = element("span", "entry")
      entry.append(mark(state), document.createTextNode(text))
      return entry
    }))
    this.paint()
  }

  // Rows that are seen: all above them are open, and with `only` they lead to, are, or lie in something not registered.
  visible() {
    const { rows } = this.data, found = []
    let closed = Infinity
    rows.forEach((row, at) => {
      if (row.depth > closed) return
      closed = this.hasBelow(at) && !this.open.has(row.id) ? row.depth : Infinity
      if (!this.only || row.hidden || this.leads(at)) found.push(at)
    })
    return found
  }

  hasBelow(at) {
    const { rows } = this.data
    return at + 1 < rows.length && rows[at + 1].depth > rows[at].depth
  }

  leads(at) {
    const { rows } = this.data
    for (let below = at + 1; below < rows.length && rows[below].depth > rows[at].depth; below += 1) if (rows[below].hidden) return true
    return false
  }

  paint(focus = false) {
    const { data } = this, seen = this.visible()
    if (!seen.includes(this.current)) this.current = seen.findLast(at => at <= this.current) ?? seen[0] ?? 0
    this.onlyButton.setAttribute("aria-pressed", this.only)
    const head = element("div", "row head")
    head.setAttribute("role", "row")
    head.append(cell("name", "name", "columnheader"), cell("what", data.what, "columnheader"), cell("line", "line", "columnheader"))
    for (const column of data.columns) {
      const one = cell("mark", column.name, "columnheader")
      one.title = column.help
      head.append(one)
    }
    const kept = this.grid.scrollTop
    this.grid.replaceChildren(head, ...seen.map(at => this.row(at)))
    this.grid.scrollTop = kept
    if (focus) this.grid.querySelector(`[data-at="${this.current}"]`)?.focus()
  }

  row(at) {
    const row = this.data.rows[at], below = this.hasBelow(at), open = this.open.has(row.id)
    const made = element("div", `row ${row.type}${row.hidden ? " hidden-part" : ""}`)
    made.dataset.at = at
    if (row.line) made.dataset.line = row.line
    made.setAttribute("role", "row")
    made.setAttribute("aria-level", row.depth + 1)
    made.tabIndex = at === this.current ? 0 : -1
    made.style.setProperty("--depth", row.depth)
    if (below) made.setAttribute("aria-expanded", open)
    const name = cell("name", "", "gridcell")
    name.append(element("span", "fold", below ? (open ? "▾" : "▸") : ""), element("span", "label", row.name))
    if (row.tag) name.append(element("span", "tag", row.tag))
    if (below && !open && row.tensors) name.append(element("span", "inside", `${row.tensors} tensors`))
    name.title = [row.path, row.repair].filter(Boolean).join("\n")
    made.append(name, cell("what", [row.what, row.size].filter(Boolean).join(" · "), "gridcell"), cell("line", row.line ? `line ${row.line}` : "", "gridcell"))
    row.marks.forEach(([state, words], k) => {
      const one = cell("mark", "", "gridcell")
      one.append(mark(state))
      one.title = `${this.data.columns[k].name}: ${words}`
      one.setAttribute("aria-label", one.title)
      made.append(one)
    })
    made.addEventListener("click", () => {
      this.current = at
      if (below) this.toggle(at)
      else this.paint(true)
    })
    made.addEventListener("pointerenter", () => tell(row.line))
    made.addEventListener("pointerleave", () => tell(null))
    made.addEventListener("focus", () => tell(row.line))
    made.addEventListener("blur", () => tell(null))
    return made
  }

  toggle(at, open = !this.open.has(this.data.rows[at].id)) {
    const { id } = this.data.rows[at]
    if (open) this.open.add(id)
    else this.open.delete(id)
    this.paint(true)
  }

  foldAll(open) {
    this.open = new Set(this.data.rows.filter(row => open || row.depth === 0).map(row => row.id))
    this.paint()
  }

  toggleOnly() {
    if (this.onlyButton.hidden) return
    this.only = !this.only
    if (this.only) this.data.rows.forEach((row, at) => this.leads(at) && this.open.add(row.id))
    this.paint()
  }

  light(line) {
    for (const row of this.grid.querySelectorAll(".row[data-line]")) row.classList.toggle("lit", Boolean(line) && Number(row.dataset.line) === line)
  }

  move(by) {
    const seen = this.visible(), next = seen[seen.indexOf(this.current) + by]
    if (next === undefined) return
    this.current = next
    this.paint(true)
  }

  press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return
    const inside = event.composedPath()[0]
    if (inside.matches?.("button") && [" ", "Enter"].includes(event.key)) return
    const at = this.current, below = this.hasBelow(at), open = this.open.has(this.data.rows[at]?.id)
    const keys = {
      ArrowDown: () => this.move(1),
      ArrowUp: () => this.move(-1),
      ArrowRight: () => (below && !open ? this.toggle(at, true) : this.move(1)),
      ArrowLeft: () => (below && open ? this.toggle(at, false) : this.above(at)),
      Enter: () => below && this.toggle(at),
      " ": () => below && this.toggle(at),
      e: () => this.foldAll(true),
      c: () => this.foldAll(false),
      u: () => this.toggleOnly(),
    }
    if (!keys[event.key]) return
    keys[event.key]()
    event.preventDefault()
    event.stopPropagation()
  }

  above(at) {
    const { rows } = this.data, parent = rows.findLastIndex((row, k) => k < at && row.depth < rows[at].depth)
    if (parent < 0) return
    this.current = parent
    this.paint(true)
  }

  end() {
    document.removeEventListener("keydown", this.onPageKey)
    document.removeEventListener("lab-line", this.onLine)
  }
}

const tell = line => document.dispatchEvent(new CustomEvent("lab-line", { detail: { line: line ?? null } }))

function cell(name, text, role) {
  const made = element("span", `cell ${name}`, text)
  made.setAttribute("role", role)
  return made
}

function mark(state) {
  const svg = svgElement("svg", { viewBox: "0 0 16 16", class: `sign sign-${state}`, "aria-hidden": "true" })
  svg.append(...SHAPES[state].map(([tag, attributes, text]) => svgElement(tag, attributes, text)))
  return svg
}
