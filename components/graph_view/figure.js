// The figure: builds its parts once, keeps zoom, step and selection when new data arrives.

const FIGURES = new WeakMap()
const LEGEND = [
  ["leaf", "leaf"], ["function", "function"], ["view", "view"], ["in-place", "in-place"], ["custom", "custom Function"],
  ["checkpoint", "checkpoint"], ["output", "output"], ["box", "folded"],
]
const TAG_LEGEND = [["kept", "kept for backward"], ["freed", "freed"], ["changed", "changed since"], ["placeholder", "recomputed"]]

export default function ({ data, parentElement, setStateValue }) {
  let figure = FIGURES.get(parentElement)
  if (!figure) FIGURES.set(parentElement, (figure = createFigure(parentElement.querySelector(".figure"))))
  figure.show(data, view => setStateValue("view", view))
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
  const parts = { root, transport: part("div", "transport", bar), passes: part("select", "passes", bar), tools: part("div", "tools", bar) }
  parts.passes.setAttribute("aria-label", "Backward pass")
  const body = part("div", "body", root)
  parts.listing = part("aside", "listing", body)
  parts.listing.setAttribute("aria-label", "The program as it ran")
  const panel = part("div", "panel", body)
  const heading = part("div", "heading", panel)
  parts.totals = part("div", "totals", heading)
  parts.legend = part("div", "legend", heading)
  parts.stage = part("div", "stage", panel)
  parts.stage.tabIndex = 0
  parts.stage.setAttribute("role", "group")
  parts.stage.setAttribute("aria-roledescription", "graph")
  const svg = svgElement("svg", { class: "canvas", width: "100%", height: "100%" })
  parts.world = svgElement("g", { class: "world" })
  svg.append(parts.world)
  parts.stage.append(svg)
  for (const name of ["overview", "zoom", "search", "details"]) parts[name] = part("div", `${name} overlay`, parts.stage)
  parts.message = part("div", "message", parts.stage)
  parts.note = part("div", "note", root)
  parts.note.setAttribute("role", "status")
  return parts
}

function createFigure(root) {
  const parts = buildParts(root)
  const { stage } = parts
  let data = { nodes: [], steps: [], frames: [], edges: [] }, send = () => {}
  let selected = null, line = null, anchor = null
  const cardOf = id => picture.nodes.get(id)?.card

  const overview = createOverview(parts.overview, (x, y) => view.centre(x, y, false))
  const view = createView(stage, parts.world, overview, () => {})
  const picture = createPicture(stage, parts.world)
  const stepper = createStepper(parts.transport, position => showStep(position, true))
  const details = createDetails(parts.details, { onClose: () => select(null), onGo: id => select(id, true), onOpenBox: id => toggleBox(id) })
  const search = createSearch(parts.search, {
    onFound(hits, current) {
      picture.light("searching", hits.map(card => card.id))
      if (current) { select(current.id, false, false); view.reveal([current]) }
    },
    onClose() { picture.light("searching", []); stage.focus() },
  })
  const listing = createListing(parts.listing, { onHover: hovered => lightLine(hovered ?? line), onPick: picked => pickLine(picked) })

  const nodesOf = wanted => data.nodes.filter(c => c.line === wanted || c.lines?.includes(wanted))
  const lightLine = wanted => {
    const cards = wanted ? nodesOf(wanted) : []
    picture.light("lining", cards.map(card => card.id))
    return cards
  }
  const pickLine = picked => {
    line = line === picked ? null : picked
    listing.mark([], line, [])
    view.reveal(lightLine(line))
  }
  const markLines = card => listing.mark(card ? (card.lines ?? [card.line]).filter(Boolean) : [], line, card?.changed ?? [])
  const select = (id, move = false, panel = true) => {
    selected = cardOf(id) ? id : null
    picture.select(selected)
    const card = cardOf(selected)
    markLines(card)
    if (!card) return details.hide()
    if (panel) details.show(card, picture.neighbours(id, "t", "s"), picture.neighbours(id, "s", "t"))
    if (move) view.reveal([card])
  }
  const hover = id => {
    picture.path(id)
    markLines(cardOf(id) ?? cardOf(selected))
  }
  const toggleBox = id => {
    const frame = data.frames.find(f => f.box === id)
    const card = data.nodes.find(c => c.box === id)
    const at = frame ? [frame.rect[0] + frame.rect[2] / 2, frame.rect[1] + 12] : [card.x, card.y - card.h / 2]
    anchor = { box: id, x: view.x + at[0] * view.k, y: view.y + at[1] * view.k }
    stage.classList.add("waiting")
    send({ figure: data.figure, pass: data.pass, open: frame ? data.open.filter(b => b !== id) : [...data.open, id] })
  }
  const showStep = (position, moving) => {
    picture.step(position)
    const step = data.steps[position - 1]
    setNote(step)
    if (step) {
      const cards = [step.item, ...step.given.map(g => g.to)].map(cardOf).filter(Boolean)
      listing.mark([cards[0]?.line].filter(Boolean), line, [])
      if (moving) view.reveal(cards)
    }
  }
  const setNote = step => {
    const last = stepper.position === data.steps.length && data.error
    parts.note.classList.toggle("faulty", Boolean(last || (data.error && !step)))
    const idle = data.error ? `This pass stopped: ${data.error}` : data.steps.length ? "Walk the backward pass with the arrow keys, or play it with space." : data.nodes.length ? "No backward pass ran over this graph." : ""
    parts.note.textContent = last && step ? `${step.note} Then the pass stopped: ${data.error}` : step ? step.note : idle
    parts.note.title = step?.exact ? `incoming gradient: ${step.exact}` : ""
  }

  const show = (next, newSend) => {
    send = newSend
    const before = data, at = data.steps[stepper.position - 1]?.at[0]
    const same = next.figure === before.figure && next.pass === before.pass
    paintTheme(root, next)
    showListing()
    if (next === before) return
    data = next
    stage.classList.remove("waiting")
    parts.message.textContent = next.message
    root.classList.toggle("empty", !next.nodes.length)
    stage.setAttribute("aria-label", next.description)
    picture.show(next)
    Object.assign(view, { width: next.size[0], height: next.size[1], largest: next.presenter ? 2 * FIT_LIMIT : FIT_LIMIT })
    if (next.nodes.length) overview.show(next.nodes, next.size)
    writeHeading(parts, next, chosen => send({ figure: data.figure, pass: chosen, open: null }))
    keepView(view, next, before, anchor)
    anchor = null
    const position = same && at !== undefined ? 1 + next.steps.findLastIndex(step => step.at[0] <= at) : 0
    stepper.setCount(next.steps.length, position, next.steps.length ? `${next.steps.length.toLocaleString("en")} steps` : "no steps")
    listing.show(next.program, next.fault, lineCounts(next.nodes))
    showStep(position, false)
    search.setCards(next.nodes)
    select(next.figure === before.figure ? selected : null, false, !parts.details.hidden)
    lightLine(line = next.program === before.program ? line : null)
  }

  let listingChosen = null // by the visitor; else the width decides
  const showListing = () => {
    const shown = listingChosen ?? root.clientWidth >= 57 * parseFloat(getComputedStyle(root).fontSize)
    root.classList.toggle("with-listing", shown)
    listButton.setAttribute("aria-pressed", shown)
  }
  const listButton = iconButton("listing", "Show the program (l)", () => {
    listingChosen = !root.classList.contains("with-listing")
    showListing()
  })
  const download = () => saveFile("autograd-graph.svg", pictureFile(parts.world, stage, [data.name, data.totals.join(" · ")], legendForFile(parts)), "image/svg+xml")
  parts.tools.append(iconButton("search", "Search (/)", () => search.open()), listButton, iconButton("download", "Download as SVG", download))
  parts.zoom.append(iconButton("plus", "Zoom in (+)", () => view.zoom(1.3, undefined, undefined, true)),
    iconButton("minus", "Zoom out (−)", () => view.zoom(1 / 1.3, undefined, undefined, true)), iconButton("fit", "Fit the whole picture (f)", () => view.fit()))

  const actions = { view, search, stepper, picture, select, toggleBox, listButton, closeLine: () => line && pickLine(line), get data() { return data }, get selected() { return selected } }
  const onKey = event => pressKey(event, actions)
  const onPageKey = event => data.presenter && event.target === document.body && onKey(event)
  root.addEventListener("keydown", onKey)
  document.addEventListener("keydown", onPageKey)
  stage.addEventListener("click", event => clickStage(event, view, select, toggleBox))
  stage.addEventListener("dblclick", event => { if (!event.target.closest(".node, .overlay, .frame")) view.fit() })
  stage.addEventListener("pointerover", event => hover(event.target.closest(".node")?.dataset.id ?? null))
  stage.addEventListener("pointerleave", () => hover(null))
  document.fonts?.ready.then(picture.squeeze)
  return {
    show,
    end() {
      stepper.stop()
      view.end()
      document.removeEventListener("keydown", onPageKey)
    },
  }
}

// New data: the same figure keeps its zoom, with the box that was opened or closed staying where it was.
function keepView(view, next, before, anchor) {
  if (!next.nodes.length) return
  if (next.figure !== before.figure || next.pass !== before.pass)
    return view.open(next.nodes.find(card => card.id === next.outputs.at(-1)))
  if (view.fitted && view.fitScale() >= READABLE) return view.fit()
  const frame = anchor && next.frames.find(f => f.box === anchor.box)
  const card = anchor && next.nodes.find(c => c.box === anchor.box)
  if (frame && view.k < READABLE) return view.look(frame.rect)
  const at = frame ? [frame.rect[0] + frame.rect[2] / 2, frame.rect[1] + 12] : card ? [card.x, card.y - card.h / 2] : null
  if (at) {
    view.x = anchor.x - at[0] * view.k
    view.y = anchor.y - at[1] * view.k
    view.fitted = false
  }
  view.paint()
}

function lineCounts(cards) {
  const counts = new Map()
  for (const card of cards) for (const line of card.lines ?? [card.line]) if (line) counts.set(line, (counts.get(line) || 0) + 1)
  return counts
}

function clickStage(event, view, select, toggleBox) {
  if (view.dragged || event.target.closest(".overlay")) return
  const frame = event.target.closest(".frame"), node = event.target.closest(".node")
  if (frame) return toggleBox(frame.dataset.box)
  const box = node?.classList.contains("kind-box")
  if (box) return toggleBox(node.dataset.id)
  select(node ? node.dataset.id : null)
}

function pressKey(event, { view, search, stepper, select, toggleBox, listButton, closeLine, data, selected, picture }) {
  if (event.ctrlKey || event.metaKey || event.altKey) return
  const inside = event.composedPath()[0]
  const typing = inside.matches?.("input, select, textarea"), onButton = inside.matches?.("button, .row")
  if (typing && !(inside.type === "range" && event.key === " ")) return
  const card = picture.nodes.get(selected)?.card
  const neighbour = (from, to) => {
    const [next] = card ? picture.neighbours(card.id, from, to) : [picture.nodes.get(data.outputs.at(-1))?.card]
    if (next) select(next.id, true)
  }
  const keys = {
    f: () => view.fit(),
    "+": () => view.zoom(1.3, undefined, undefined, true),
    "=": () => view.zoom(1.3, undefined, undefined, true),
    "-": () => view.zoom(1 / 1.3, undefined, undefined, true),
    "/": () => search.open(),
    l: () => listButton.click(),
    ArrowUp: () => neighbour("t", "s"),
    ArrowDown: () => neighbour("s", "t"),
    Escape: () => (search.isOpen ? search.close() : (select(null), closeLine())),
  }
  const frame = inside.closest?.(".frame")
  if (!onButton && (event.key === "Enter" || (event.key === " " && frame)) && (frame || card?.kind === "box")) toggleBox(frame ? frame.dataset.box : card.box)
  else if (onButton && (event.key === " " || event.key === "Enter")) return
  else if (keys[event.key]) keys[event.key]()
  else if (!stepper.key(event)) return
  event.preventDefault()
  event.stopPropagation()
}

function writeHeading(parts, data, onPass) {
  parts.totals.replaceChildren(...data.totals.map(text => element("span", /changed/.test(text) ? "faulty" : "", text)), ...data.caveats.map(text => element("span", "caveat", text)))
  parts.passes.replaceChildren(...data.passes.map(text => element("option", "", text)))
  parts.passes.selectedIndex = data.pass
  parts.passes.hidden = data.passes.length < 2
  parts.passes.onchange = () => onPass(parts.passes.selectedIndex)
  const kinds = new Set(data.nodes.map(card => card.kind)), tags = data.nodes.flatMap(card => card.tags)
  const states = new Set(tags.map(tag => tag.state))
  if (tags.some(tag => tag.freed_at !== null)) states.add("freed")
  const entry = (name, text) => {
    const item = element("span", "entry")
    item.append(element("i", `swatch ${name}`), document.createTextNode(text))
    return item
  }
  const direction = element("span", "entry direction")
  direction.append(icon("down"), document.createTextNode("data"), icon("up"), document.createTextNode("gradients"))
  parts.legend.replaceChildren(direction, ...LEGEND.filter(([k]) => kinds.has(k)).map(([k, t]) => entry(`kind-${k}`, t)), ...TAG_LEGEND.filter(([s]) => states.has(s)).map(([s, t]) => entry(`tag ${s}`, t)))
}

function legendForFile(parts) {
  return [...parts.legend.querySelectorAll(".entry:not(.direction)")].map(entry => {
    const style = getComputedStyle(entry.firstChild)
    return { text: entry.textContent, fill: style.backgroundColor, line: style.borderLeftColor, dash: style.borderTopStyle === "dashed" ? "3 2" : "" }
  }).concat({ text: "data flows down, gradients flow up", fill: "none", line: "none" })
}

// The theme is read from the page: a dark background gets the dark hues.
function paintTheme(root, data) {
  root.classList.toggle("presenter", Boolean(data.presenter))
  root.style.setProperty("--height", `${data.height}px`)
  const [r, g, b] = (getComputedStyle(root).backgroundColor.match(/\d+(\.\d+)?/g) ?? [255, 255, 255]).map(Number)
  root.classList.toggle("dark", 0.299 * r + 0.587 * g + 0.114 * b < 128)
}
