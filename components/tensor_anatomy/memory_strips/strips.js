// Pieces of memory as cells; under them, for each name, which cells it reads and in which order.

import { bytesText, part, svgElement } from "../../kit/base.js"

const CELLS = 64, NAMES = 24, PIECES = 12, ROW = 26, CELL = 30, LABEL = 108

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
    const wide = Math.max(stage.clientWidth, 320) - 24
    stage.append(drawPiece(number, data.storages[number], pieces.get(number).slice(0, NAMES), step, atEnd, wide))
  }
  const current = stage.querySelector(".current")
  if (current) {
    const above = current.offsetTop - stage.offsetTop
    if (above < stage.scrollTop || above + current.offsetHeight > stage.scrollTop + stage.clientHeight) stage.scrollTop = above - 12
  }
  if (order.length > PIECES) part(stage, "p", "empty", `${order.length - PIECES} more pieces of memory`)
}

function drawPiece(number, storage, names, step, atEnd, wide) {
  const box = document.createElement("section")
  box.className = "piece"
  if (step?.storage === number) box.classList.add("current")
  const item = storage?.item || 1, bytes = storage?.bytes ?? 0
  const elements = storage?.elements || Math.max(1, ...names.map(([, , place]) => reach(place)))
  const each = Math.ceil(elements / CELLS), count = Math.max(1, Math.ceil(elements / each))
  const from = storage?.line ? `, since line ${storage.line}` : ""
  const unit = each > 1 ? `, a cell is ${each.toLocaleString("en")} elements` : `, ${elements} element${elements === 1 ? "" : "s"} of ${item} B`
  part(box, "header", "piece-head", `memory ${number} · ${bytesText(bytes)}${from}${unit}`)
  const cell = Math.min(CELL, (wide - LABEL) / count), values = atEnd && each === 1 ? storage?.values ?? [] : []
  const height = (values.length ? ROW : 18) + names.length * (ROW + 3) + 4
  const svg = svgElement("svg", { width: LABEL + count * cell + 4, height, class: "cells", role: "img", "aria-label": names.map(([name]) => name).join(", ") })
  const text = (x, y, words, kind) => svg.append(svgElement("text", { x, y, class: kind }, words))
  text(LABEL - 8, values.length ? 17 : 12, values.length ? "contents" : "position", "side")
  for (let at = 0; at < count; at++) {
    const x = LABEL + at * cell
    svg.append(svgElement("rect", { x, y: 0, width: Math.max(cell - 1, 0.6), height: values.length ? ROW - 2 : 15, class: "slot" }))
    if (values.length && cell > 15) text(x + cell / 2 - 0.5, 16, short(values[at], cell), "value")
    else if (!values.length && cell > 15) text(x + cell / 2 - 0.5, 11.5, at * each, "at")
  }
  names.forEach(([name, tensor, place], row) => {
    const y = (values.length ? ROW : 18) + row * (ROW + 3), cells = cellsOf(place, count, each)
    const kind = tensor === step?.tensor ? ` kind-${step.kind.replaceAll(" ", "-")}` : ""
    text(LABEL - 8, y + 17, name.length > 14 ? name.slice(0, 13) + "…" : name, `name${kind}`)
    cells.forEach((indices, at) => {
      if (!indices.length) return
      const x = LABEL + at * cell, full = Math.min(1, indices.length / each)
      const box = svgElement("rect", { x, y, width: Math.max(cell - 1, 0.6), height: ROW - 2, class: `element${kind}`, "fill-opacity": 0.35 + 0.65 * full })
      box.append(svgElement("title", {}, `${name} [${place.shape}] strides [${place.stride}]: ${indices.length > 6 ? `${indices.length} of its elements` : `element ${indices.join(", ")}`}`))
      svg.append(box)
      if (cell > 15 && each === 1) text(x + cell / 2 - 0.5, y + 16, indices.length > 1 ? `×${indices.length}` : indices[0], "index")
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
  const most = cell > 26 ? 4 : 3, plain = String(+value.toPrecision(3))
  return plain.length <= most ? plain : value.toPrecision(1).length <= most + 1 ? String(+value.toPrecision(1)).slice(0, most + 1) : "…"
}
