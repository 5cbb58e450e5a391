// Cards, edges and frames as SVG. Every text is set as text.

import { svgElement } from "../../kit/base.js"

const PAD = 11, TITLE_Y = 20, VALUE_Y = 41, BARS_ROW = 40, TAG_HEIGHT = 16, TAG_STEP = 20

// Non-finite numbers stand out: the text is set in pieces.
export function setNumbers(target, text) {
  target.replaceChildren(
    ...text.split(/(NaN|−?∞)/).filter(Boolean).map(piece =>
      svgElement("tspan", /^(NaN|−?∞)$/.test(piece) ? { class: "fault" } : {}, piece)),
  )
}

export function drawNode(card) {
  const node = svgElement("g", { class: `node kind-${card.kind}`, "data-id": card.id, role: "img", "aria-label": spokenCard(card) })
  node.append(...nodeOutline(card))
  const parts = { node, card, tags: [] }
  const text = (className, content, x, y, end) => {
    const made = svgElement("text", { class: className, x, y, "text-anchor": end ? "end" : "start" })
    setNumbers(made, content)
    node.append(made)
    return made
  }
  parts.title = text("title", card.title, PAD, TITLE_Y)
  parts.meta = text("meta", card.meta, card.w - PAD, TITLE_Y, true)
  parts.value = text("value", card.value, PAD, VALUE_Y)
  parts.grad = text("grad", "", card.w - PAD, VALUE_Y, true)
  if (card.bars?.length) node.append(drawBars(card))
  const top = (card.value || card.grad ? VALUE_Y + 8 : TITLE_Y + 9) + (card.bars?.length ? BARS_ROW : 0)
  card.tags.forEach((tag, i) => parts.tags.push(drawTag(node, card, tag, top + i * TAG_STEP)))
  if (card.kind === "box") node.append(boxHandle(card.w - 1, 1, "plus"))
  return parts
}

// The gradient that arrives at each round of a repetition, on a logarithmic scale.
function drawBars(card) {
  const step = (card.w - 2 * PAD) / card.bars.length, room = BARS_ROW - 8
  const group = svgElement("g", { class: "bars" })
  card.bars.forEach((bar, i) => {
    const height = bar.h * room, at = { x: PAD + i * step, width: Math.max(step - 1.5, 1) }
    const whole = svgElement("rect", { class: "bar-room", ...at, y: VALUE_Y + 8, height: room })
    whole.append(svgElement("title", {}, bar.text))
    group.append(svgElement("rect", { class: bar.fault ? "bar fault" : "bar", ...at, y: VALUE_Y + 8 + room - height, height }), whole)
  })
  return group
}

function spokenCard(card) {
  const tags = card.tags.map(t => t.text).join(", ")
  return [card.name, card.meta, card.value && `value ${card.value}`, card.grad && `gradient ${card.grad}`, tags && `saved: ${tags}`, card.own && "not in the graph beside it"]
    .filter(Boolean).join("; ") + (card.kind === "box" ? "; closed, Enter opens it" : "")
}

function nodeOutline(card) {
  const { w, h } = card
  const shapes = card.own ? [svgElement("rect", { class: "halo", x: -5, y: -5, width: w + 10, height: h + 10, rx: 13 })] : []
  if (card.kind === "box") shapes.push(svgElement("rect", { class: "stack", x: 5, y: 5, width: w, height: h, rx: 9 }))
  shapes.push(svgElement("rect", { class: "body", width: w, height: h, rx: 9 }))
  if (card.kind === "in-place") shapes.push(svgElement("rect", { class: "inner", x: 3, y: 3, width: w - 6, height: h - 6, rx: 6.5 }))
  if (card.kind === "custom" || card.kind === "checkpoint")
    shapes.push(svgElement("rect", { class: "mark", x: 0, y: 9, width: 4.5, height: h - 18, rx: 2 }))
  return shapes
}

function drawTag(node, card, tag, y) {
  const group = svgElement("g", { class: "tag", transform: `translate(${PAD - 2} ${y})` })
  const label = svgElement("text", { x: 7, y: 12 })
  group.append(svgElement("rect", { width: card.w - 2 * PAD + 4, height: TAG_HEIGHT, rx: 5 }), label)
  node.append(group)
  return { group, label, tag }
}

// What a tag says depends on the step: freed from the step on in which the engine ran the node.
export function paintTag({ group, label, tag }, freed) {
  const state = freed ? "freed" : tag.state
  group.setAttribute("class", `tag ${state}`)
  label.textContent = (freed ? "freed: " : tag.state === "kept" ? "kept: " : "") + tag.text
}

function boxHandle(x, y, name) {
  const handle = svgElement("g", { class: "handle", transform: `translate(${x} ${y})` })
  handle.append(svgElement("circle", { r: 9 }), svgElement("path", { d: name === "plus" ? "M0-4v8M-4 0h8" : "M-4 0h8" }))
  return handle
}

export function drawFrame(frame) {
  const [x, y, width, height] = frame.rect
  const group = svgElement("g", { class: "frame", "data-box": frame.box, role: "button", tabindex: 0, "aria-label": `Close ${frame.title}` })
  const label = svgElement("text", { x: x + 12, y: y + 15 })
  label.append(svgElement("tspan", { class: "frame-title" }, frame.title), svgElement("tspan", { class: "frame-meta" }, frame.meta ? `  ${frame.meta}` : ""))
  group.append(svgElement("rect", { x, y, width, height, rx: 12 }), label, boxHandle(x + width - 3, y + 3, "minus"))
  return group
}

export function drawEdge(edge) {
  const group = svgElement("g", { class: "edge", "data-edge": edge.id })
  const p = edge.points
  let d = `M${p[0]}`
  for (let i = 1; i + 2 < p.length; i += 3) d += `C${p[i]} ${p[i + 1]} ${p[i + 2]}`
  const line = svgElement("path", { class: "line", d })
  group.append(line, arrowHead("head", p.at(-1), p.at(-2)), arrowHead("tail", p[0], p[1]))
  const parts = { group, line, edge }
  if (edge.count > 1) {
    const at = line.getPointAtLength(line.getTotalLength() / 2)
    group.append(svgElement("text", { class: "count", x: at.x + 6, y: at.y + 4 }, `× ${edge.count.toLocaleString("en")}`))
  }
  return parts
}

function arrowHead(className, [x, y], [fromX, fromY]) {
  const angle = Math.atan2(y - fromY, x - fromX) * 180 / Math.PI
  return svgElement("path", { class: className, d: "M0 0-8-3.6-6.4 0-8 3.6z", transform: `translate(${x} ${y}) rotate(${angle.toFixed(1)})` })
}

// Widths come from Python's estimate; where a face runs wider, the text is squeezed to its room.
function squeeze(text, room) {
  text.removeAttribute("textLength")
  if (text.firstChild && text.getComputedTextLength() > room) {
    text.setAttribute("textLength", Math.max(room, 8))
    text.setAttribute("lengthAdjust", "spacingAndGlyphs")
  }
}

export function squeezeNode(parts) {
  const room = parts.card.w - 2 * PAD
  squeeze(parts.meta, room * 0.62)
  squeeze(parts.title, room - (parts.meta.firstChild ? parts.meta.getComputedTextLength() + 8 : 0))
  squeezeValues(parts)
  for (const { label } of parts.tags) squeeze(label, room - 10)
}

function squeezeValues(parts) {
  const room = parts.card.w - 2 * PAD
  squeeze(parts.grad, parts.value.firstChild ? room * 0.62 : room)
  squeeze(parts.value, room - (parts.grad.firstChild ? parts.grad.getComputedTextLength() + 8 : 0))
}

export function showGradient(parts, gradient) {
  if (parts.gradient === gradient) return
  parts.gradient = gradient
  setNumbers(parts.grad, gradient ? `∂ ${gradient}` : "")
  squeezeValues(parts)
}

// The title as large as the card allows, for when the picture is far away.
export function farTitleSize(card) {
  return Math.max(14, Math.min(card.h * 0.6, 46, (1.7 * (card.w - 2 * PAD)) / Math.max(card.title.length, 1)))
}
