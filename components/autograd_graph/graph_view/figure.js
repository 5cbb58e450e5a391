// The figure: builds its parts once, keeps zoom, step and selection when new data arrives.

import { createDetails, createSearch } from "./details.js"
import { pictureFile } from "./download.js"
import { legendForFile, lineCounts, writeHeading } from "./heading.js"
import { createListing } from "./listing.js"
import { createPicture } from "./picture.js"
import { FIT_LIMIT, READABLE, createOverview, createView } from "./view.js"
import { element, figureAt, iconButton, paintTheme, part, svgElement } from "../../kit/base.js"
import { saveButtons } from "../../kit/save.js"
import { createStepper } from "../../kit/stepper/stepper.js"

const LISTING_FROM_EM = 57 // width from which the program stands beside the picture; the same in figure.css
const HINT = "Walk the backward pass with the arrow keys, or play it with space."

export default figureAt(".figure", (root, send) => new Figure(root, view => send("view", view)))

function buildParts(root) {
  const bar = part(root, "div", "bar")
  const parts = { root, transport: part(bar, "div", "transport"), passes: part(bar, "select", "passes"), tools: part(bar, "div", "tools") }
  parts.passes.setAttribute("aria-label", "Backward pass")
  const body = part(root, "div", "body")
  parts.listing = part(body, "aside", "listing")
  parts.listing.setAttribute("aria-label", "The program as it ran")
  const panel = part(body, "div", "panel"), heading = part(panel, "div", "heading")
  parts.totals = part(heading, "div", "totals")
  parts.legend = part(heading, "div", "legend")
  parts.stage = part(panel, "div", "stage")
  parts.stage.tabIndex = 0
  parts.stage.setAttribute("role", "group")
  parts.stage.setAttribute("aria-roledescription", "graph")
  const svg = svgElement("svg", { class: "canvas", width: "100%", height: "100%" })
  parts.world = svgElement("g", { class: "world" })
  svg.append(parts.world)
  parts.stage.append(svg)
  for (const name of ["overview", "zoom", "search", "details"]) parts[name] = part(parts.stage, "div", `${name} overlay`)
  parts.message = part(parts.stage, "div", "message")
  parts.note = part(root, "div", "note")
  parts.note.setAttribute("role", "status")
  return parts
}

class Figure {
  data = { nodes: [], steps: [], frames: [], edges: [] }
  selected = null // id of the chosen node
  line = null // chosen line of the program
  pointed = null // line that a finding points at
  anchor = null // where the box was that is being opened or closed
  listingChosen = null // by the visitor; until then the width decides

  constructor(root, send) {
    this.send = send
    const parts = (this.parts = buildParts(root))
    const overview = (this.overview = createOverview(parts.overview, (x, y) => this.view.centre(x, y)))
    this.view = createView(parts.stage, parts.world, overview)
    this.picture = createPicture(parts.stage, parts.world)
    this.stepper = createStepper(parts.transport, position => this.showStep(position, true))
    this.details = createDetails(parts.details, { onClose: () => this.select(null), onGo: id => this.select(id, { move: true }), onOpenBox: id => this.toggleBox(id) })
    this.search = createSearch(parts.search, { onFound: (hits, current) => this.found(hits, current), onClose: () => this.searchClosed() })
    this.listing = createListing(parts.listing, { onHover: line => this.lightLine(line ?? this.line), onPick: line => this.pickLine(line) })
    this.addTools()
    this.listen()
  }

  addTools() {
    const { view, parts } = this
    this.listButton = iconButton("listing", "Show the program (l)", () => this.showListing(!this.parts.root.classList.contains("with-listing")))
    parts.tools.append(iconButton("search", "Search (/)", () => this.search.open()), this.listButton, ...saveButtons("tool text", "autograd-graph", () => this.file()))
    parts.zoom.append(iconButton("plus", "Zoom in (+)", () => view.zoomStep(1)), iconButton("minus", "Zoom out (−)", () => view.zoomStep(-1)),
      iconButton("fit", "Fit the whole picture (f)", () => view.fit()))
  }

  listen() {
    const { stage, root } = this.parts
    root.addEventListener("keydown", event => pressKey(event, this))
    // Before a group the keys work wherever the focus is.
    this.onPageKey = event => this.data.presenter && !event.composedPath().includes(root) && pressKey(event, this)
    document.addEventListener("keydown", this.onPageKey)
    this.onLine = ({ detail }) => this.data.pointedAt && this.pointAt(detail.line)
    document.addEventListener("lab-line", this.onLine)
    stage.addEventListener("click", event => this.click(event.target))
    stage.addEventListener("dblclick", event => { if (!event.target.closest(".node, .overlay, .frame")) this.view.fit() })
    stage.addEventListener("pointerover", event => this.hover(event.target.closest(".node")?.dataset.id ?? null))
    stage.addEventListener("pointerleave", () => this.hover(null))
    document.fonts?.ready.then(() => this.picture.squeeze())
  }

  end() {
    clearInterval(this.walking)
    this.stepper.stop()
    this.view.end()
    document.removeEventListener("keydown", this.onPageKey)
    document.removeEventListener("lab-line", this.onLine)
  }

  show(data) {
    const { parts, stepper } = this, before = this.data
    this.data = data
    paintTheme(parts.root, data)
    this.showListing(this.listingChosen)
    if (data === before) return // only the theme is new
    const sameFigure = data.figure === before.figure, at = before.steps[stepper.position - 1]?.at[0]
    parts.stage.classList.remove("waiting")
    parts.stage.setAttribute("aria-label", data.description)
    parts.message.textContent = data.message
    parts.root.classList.toggle("empty", !data.nodes.length)
    writeHeading(parts, data, pass => this.send({ figure: data.figure, pass, open: null }))
    this.picture.show(data)
    this.place(sameFigure && data.pass === before.pass)
    const position = sameFigure && data.pass === before.pass && at !== undefined ? 1 + data.steps.findLastIndex(step => step.at[0] <= at) : 0
    stepper.setCount(data.steps.length, position, data.steps.length ? `${data.steps.length.toLocaleString("en")} steps` : "no steps")
    this.listing.show(data.program, data.fault, lineCounts(data.nodes), data)
    this.listing.point(this.pointed)
    this.picture.markSites(data.sites ?? [])
    this.line = data.program === before.program ? this.line : null
    this.lightLine(this.pointed ?? this.line)
    this.select(sameFigure ? this.selected : null, { panel: !parts.details.hidden })
    this.showStep(position, false)
    this.search.setCards(data.nodes)
    this.play()
  }

  // By itself, over and over, until the visitor takes over.
  play() {
    if (!this.data.playing || this.walking || matchMedia("(prefers-reduced-motion: reduce)").matches) return
    const { stepper, parts } = this
    this.walking = setInterval(() => stepper.go(stepper.position < stepper.count ? stepper.position + 1 : 0), 1400)
    parts.root.addEventListener("pointerdown", () => clearInterval(this.walking), { once: true })
    parts.root.addEventListener("keydown", () => clearInterval(this.walking), { once: true })
  }

  // The same figure keeps its zoom, and a box that was opened or closed stays where it was.
  place(same) {
    const { data, view, anchor } = this
    this.anchor = null
    if (!data.nodes.length) return
    Object.assign(view, { width: data.size[0], height: data.size[1], largest: data.presenter ? 2 * FIT_LIMIT : FIT_LIMIT, projected: data.presenter })
    this.overview.show(data.nodes, data.size)
    if (!same) return view.open(this.card(data.focus))
    if (view.fitted && view.fitScale() >= READABLE) return view.fit()
    const frame = anchor && data.frames.find(({ box }) => box === anchor.box)
    if (frame && view.k < READABLE) return view.look(frame.rect)
    if (anchor) view.pin(this.boxTop(anchor.box), anchor)
    view.paint()
  }

  boxTop(box) {
    const frame = this.data.frames.find(one => one.box === box), card = this.data.nodes.find(one => one.box === box)
    return frame ? { x: frame.rect[0] + frame.rect[2] / 2, y: frame.rect[1] } : { x: card.x, y: card.y - card.h / 2 }
  }

  toggleBox(box) {
    const { data, view } = this, open = data.open.includes(box)
    this.anchor = { box, ...view.seen(this.boxTop(box)) }
    this.parts.stage.classList.add("waiting")
    this.send({ figure: data.figure, pass: data.pass, open: open ? data.open.filter(other => other !== box) : [...data.open, box] })
  }

  card(id) { return this.picture.nodes.get(id)?.card }

  select(id, { move = false, panel = true } = {}) {
    const card = this.card(id)
    this.selected = card ? id : null
    this.picture.select(this.selected)
    this.markLines(card)
    if (!card) {
      this.details.hide()
      return this.view.unclear()
    }
    if (move) this.view.reveal([card])
    if (!panel) return
    this.details.show(card, this.picture.neighbours(id, "t", "s"), this.picture.neighbours(id, "s", "t"))
    this.view.clear(card, this.parts.details)
  }

  // The neighbour to which the up and down keys go.
  selectNext(from, to) {
    const next = this.selected ? this.picture.neighbours(this.selected, from, to)[0] : this.card(this.data.focus)
    if (next) this.select(next.id, { move: true })
  }

  click(target) {
    if (this.view.dragged() || target.closest(".overlay")) return
    const box = target.closest(".frame")?.dataset.box ?? this.card(target.closest(".node")?.dataset.id)?.box
    if (box) this.toggleBox(box)
    else this.select(target.closest(".node")?.dataset.id ?? null)
  }

  hover(id) {
    this.picture.path(id)
    this.markLines(this.card(id) ?? this.card(this.selected))
  }

  markLines(card) { this.listing.mark(card ? (card.lines ?? [card.line]).filter(Boolean) : [], this.line, card?.changed ?? []) }

  lightLine(line) {
    const cards = line ? this.data.nodes.filter(card => (card.lines ?? [card.line]).includes(line)) : []
    this.picture.light("lining", cards)
    return cards
  }

  pointAt(line) {
    this.pointed = line
    this.listing.point(line)
    this.lightLine(line ?? this.line)
  }

  pickLine(line) {
    this.line = this.line === line ? null : line
    this.listing.mark([], this.line, [])
    this.view.reveal(this.lightLine(this.line))
  }

  found(hits, current) {
    this.picture.light("searching", hits)
    if (!current) return
    this.select(current.id, { panel: false })
    this.view.reveal([current])
  }

  searchClosed() {
    this.picture.light("searching", [])
    this.parts.stage.focus()
  }

  escape() {
    if (this.search.isOpen) return this.search.close()
    this.select(null)
    if (this.line) this.pickLine(this.line)
  }

  showStep(position, moving) {
    this.picture.step(position)
    const step = this.data.steps[position - 1]
    this.writeNote(step, position)
    this.tellLine(step && this.card(step.item)?.line)
    if (!step) return
    const cards = [step.item, ...step.given.map(given => given.to)].map(id => this.card(id)).filter(Boolean)
    this.listing.mark([cards[0]?.line].filter(Boolean), this.line, [])
    if (moving) this.view.reveal(cards)
  }

  // The editor marks the line of the step; before a group, where the program has no room, the line stands by the note.
  tellLine(line) {
    const { data, parts } = this, row = line ? data.program.split("\n")[line - 1] : ""
    if (data.pointedAt) document.dispatchEvent(new CustomEvent("lab-step", { detail: { line: line || null, row } }))
    if (line && data.presenter && !parts.root.classList.contains("with-listing")) parts.note.prepend(element("code", "step-line", `${line}  ${row.trim()}`), " ")
  }

  writeNote(step, position) {
    const { note } = this.parts, { error, steps, nodes } = this.data
    const stopped = error && (!step || position === steps.length)
    const idle = steps.length ? HINT : nodes.length ? "No backward pass ran over this graph." : ""
    note.classList.toggle("faulty", Boolean(stopped))
    note.textContent = [step?.note, stopped && `The pass stopped: ${error}`].filter(Boolean).join(" ") || idle
    note.title = step?.exact ? `incoming gradient: ${step.exact}` : ""
  }

  showListing(chosen) {
    const { root } = this.parts
    this.listingChosen = chosen
    const shown = chosen ?? (this.data.presenter && root.clientWidth >= LISTING_FROM_EM * parseFloat(getComputedStyle(root).fontSize))
    root.classList.toggle("with-listing", shown)
    this.listButton.setAttribute("aria-pressed", shown)
  }

  file() {
    const { parts, data } = this
    return pictureFile(parts.world, parts.stage, [data.name, data.totals.join(" · ")], legendForFile(parts, data.across))
  }
}

function pressKey(event, figure) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return
  const inside = event.composedPath()[0], onButton = inside.matches?.("button, .row, a, summary, [role=button]:not(.frame)")
  if (inside.isContentEditable || inside.matches?.("input:not([type=range]), select, textarea, [role=tab], [role=radio], [role=combobox]")) return
  if (inside.matches?.("input[type=range]") && event.key !== " ") return
  if (onButton && (event.key === " " || event.key === "Enter")) return
  const frame = inside.closest?.(".frame")?.dataset.box, box = frame ?? figure.card(figure.selected)?.box
  const keys = {
    f: () => figure.view.fit(),
    "+": () => figure.view.zoomStep(1),
    "=": () => figure.view.zoomStep(1),
    "-": () => figure.view.zoomStep(-1),
    "/": () => figure.search.open(),
    l: () => figure.listButton.click(),
    ArrowUp: () => figure.selectNext("t", "s"),
    ArrowDown: () => figure.selectNext("s", "t"),
    Escape: () => figure.escape(),
  }
  if ((event.key === "Enter" && box) || (event.key === " " && frame)) figure.toggleBox(box)
  else if (keys[event.key]) keys[event.key]()
  else if (!figure.stepper.key(event)) return
  event.preventDefault()
  event.stopPropagation()
}
