// Pieces of memory as cells; under them, for each name, which cells it reads and in which order.

import { bytesText, part, svgElement } from "../../kit/base.js"

const CELLS = 64, NAMES = 24, PIECES = 12
const SIZES = { row: 26, cell: 30, label: 108, from: 15 } // pixels; numbers are written into cells wider than `from`
const PROJECTED = 1.6

// Names at a position: what each binding up to there says.
export function boundAt(bindings, position) {
  const bound = new Map()
  for (const [step, name, tensor] of bindings) {
    if (step > position) break
    if (tensor === null) bound.delete(name)
    else bound.set(name, tensor)
  }
  return bound
}

// For each of `count` cells of `each` elements: the indices (in the order of the tensor) that lie in it.
export function cellsOf({ shape, stride, offset }, count, each, most = 20000) {
  const cells = Array.from({ length: count }, () => [])
  const total = shape.reduce((a, b) => a * b, 1)
  for (let index = 0; index < Math.min(total, most); index++) {
    let left = index, position = offset
    for (let dim = shape.length - 1; dim >= 0; dim--) {
      position += (left % shape[dim]) * stride[dim]
      left = Math.floor(left / shape[dim])
    }
    cells[Math.floor(position / each)]?.push(index)
  }
  return cells
}

export function drawStrips(stage, data, bound, step, atEnd) {
  const pieces = new Map()
  for (const [name, tensor] of bound) {
    const place = data.places[tensor]
    if (!place || place.storage === null) continue
    if (!pieces.has(place.storage)) pieces.set(place.storage, [])
    pieces.get(place.storage).push([name, tensor, place])
  }
  const order = [...pieces.keys()].sort((a, b) => a - b), at = order.indexOf(step?.storage)
  if (at >= PIECES) order.splice(PIECES - 1, 0, ...order.splice(at, 1))
  stage.replaceChildren()
  if (!order.length) part(stage, "p", "empty", "No name stands for a tensor here.")
  for (const number of order.slice(0, PIECES)) {
    const wide = Math.max(stage.clientWidth, 280) - 42, size = sizes(data.presenter ? PROJECTED : 1)
    stage.append(drawPiece(number, data.storages[number], pieces.get(number).slice(0, NAMES), step, atEnd, wide, size))
  }
  const current = stage.querySelector(".current")
  if (current) {
    const above = current.offsetTop - stage.offsetTop
    if (above < stage.scrollTop || above + current.offsetHeight > stage.scrollTop + stage.clientHeight) stage.scrollTop = above - 12
  }
  if (order.length > PIECES) part(stage, "p", "empty", `${order.length - PIECES} more pieces of memory`)
}

const sizes = scale => Object.fromEntries(Object.entries(SIZES).map(([name, pixels]) => [name, pixels * scale]))

function drawPiece(number, storage, names, step, atEnd, wide, size) {
  const box = document.createElement("section")
  box.className = "piece"
  if (step?.storage === number) box.classList.add("current")
  const item = storage?.item || 1, bytes = storage?.bytes ?? 0
  const elements = storage?.elements || Math.max(1, ...names.map(([, , place]) => reach(place)))
  const each = Math.ceil(elements / CELLS), count = Math.max(1, Math.ceil(elements / each))
  const cell = Math.min(size.cell, (wide - size.label) / count), written = each === 1 && cell > size.from
  const values = atEnd && written ? storage?.values ?? [] : []
  const from = storage?.line ? `, since line ${storage.line}` : ""
  const unit = each > 1 ? `, a cell is ${each.toLocaleString("en")} elements` : `, ${elements} element${elements === 1 ? "" : "s"} of ${item} B`
  part(box, "header", "piece-head", `memory ${number} · ${bytesText(bytes)}${from}${unit}${written ? "" : "; darker comes later in a tensor"}`)
  const top = values.length ? size.row : size.row * 0.7, gap = 3
  const svg = svgElement("svg", { width: size.label + count * cell + 4, height: top + names.length * (size.row + gap) + 4, class: "cells", role: "img", "aria-label": names.map(([name]) => name).join(", ") })
  const text = (x, y, words, kind) => svg.append(svgElement("text", { x, y, class: kind }, words))
  const middle = (at, y, words, kind) => written && text(size.label + (at + 0.5) * cell - 0.5, y, words, kind)
  const rect = (at, y, height, kind, opacity = 1) => svg.appendChild(svgElement("rect", { x: size.label + at * cell, y, width: Math.max(cell - 1, 0.6), height, class: kind, "fill-opacity": opacity }))
  text(size.label - 8, top - size.row * 0.3, values.length ? "contents" : "position", "side")
  for (let at = 0; written && at < count; at++) {
    rect(at, 0, top - 3, "slot")
    middle(at, top - size.row * (values.length ? 0.36 : 0.24), values.length ? short(values[at], cell / size.cell) : at, values.length ? "value" : "at")
  }
  if (!written) rect(0, 0, top - 3, "slot").setAttribute("width", count * cell)
  names.forEach(([name, tensor, place], row) => {
    const y = top + row * (size.row + gap), total = Math.max(1, place.shape.reduce((a, b) => a * b, 1) - 1)
    const kind = tensor === step?.tensor ? ` kind-${step.kind.replaceAll(" ", "-")}` : ""
    text(size.label - 8, y + size.row * 0.66, name.length > 14 ? name.slice(0, 13) + "…" : name, `name${kind}`)
    cellsOf(place, count, each).forEach((indices, at) => {
      if (!indices.length) return
      const order = indices.reduce((a, b) => a + b, 0) / indices.length / total
      const drawn = rect(at, y, size.row - 2, `element${kind}${written ? "" : " shaded"}`, written ? 1 : 0.12 + 0.88 * order)
      drawn.append(svgElement("title", {}, `${name} [${place.shape}] strides [${place.stride}]: ${indices.length > 6 ? `${indices.length} of its elements` : `element ${indices.join(", ")}`}`))
      middle(at, y + size.row * 0.62, indices.length > 1 ? `×${indices.length}` : indices[0], "index")
    })
  })
  box.append(svg)
  return box
}

// One more than the last position that a tensor reads.
function reach({ shape, stride, offset }) {
  return shape.reduce((end, size, dim) => end + Math.max(0, size - 1) * stride[dim], offset) + 1
}

function short(value, cell) {
  if (typeof value === "boolean") return value ? "T" : "F"
  if (typeof value !== "number") return String(value).replace("Infinity", "∞").slice(0, 4)
  const most = cell > 0.85 ? 4 : 3, plain = String(+value.toPrecision(3))
  return plain.length <= most ? plain : value.toPrecision(1).length <= most + 1 ? String(+value.toPrecision(1)).slice(0, most + 1) : "…"
}
