// A figure as a file that needs nothing else, SVG or PNG: what is seen, as shapes and texts, without its controls.

import { button, element, svgElement } from "./base.js"
import { SvgPen, clippedGroup, paint, plainColour } from "./pen.js"

const CONTROLS = ".bar, button:not(th button), select, input, textarea, .tip, .hint, .zoom-mark, .overlay"
const STYLED = ["fill", "fill-opacity", "stroke", "stroke-opacity", "stroke-width", "stroke-dasharray", "stroke-linejoin", "paint-order", "opacity",
  "font-size", "font-weight", "display", "visibility"]
const FACE = "'Source Sans 3', 'Source Sans Pro', Helvetica, Arial, sans-serif"
const MARGIN = 16, SHARP = 2, LARGEST = 8192 // pixels; SHARP pixels of a PNG for one of the screen

/** Two buttons that save what `make` answers: the text of an SVG. @param {() => string} make */
export function saveButtons(className, name, make) {
  return [
    button(className, "SVG", "Download as SVG", () => saveFile(`${name}.svg`, new Blob([make()], { type: "image/svg+xml" }))),
    button(className, "PNG", "Download as PNG", async () => saveFile(`${name}.png`, await pixels(make()))),
  ]
}

/** @param {Blob} content */
export function saveFile(name, content) {
  const url = URL.createObjectURL(content)
  const link = element("a")
  link.href = url
  link.download = name
  link.click()
  setTimeout(() => URL.revokeObjectURL(url), 10000)
}

/** The SVG as a PNG, twice as fine as the screen where that is not too large. @returns {Promise<Blob>} */
async function pixels(svg) {
  const image = new Image()
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`
  await image.decode()
  const scale = Math.min(SHARP, LARGEST / Math.max(image.width, image.height))
  const canvas = element("canvas")
  canvas.width = Math.round(image.width * scale)
  canvas.height = Math.round(image.height * scale)
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height)
  return new Promise(done => canvas.toBlob(done, "image/png"))
}

/** Shapes on a ground, as the text of a file. */
export function svgFile(shapes, width, height, ground, more = {}) {
  const file = svgElement("svg", { xmlns: "http://www.w3.org/2000/svg", width, height, "font-family": FACE, viewBox: `0 0 ${width} ${height}`, ...more })
  file.append(svgElement("rect", { width: "100%", height: "100%", ...paint("fill", ground) }), ...shapes)
  return new XMLSerializer().serializeToString(file)
}

/** A figure as it is seen now, cut to what is left without its controls. A canvas, or an element with a ground of its own
 *  making, carries `drawn(pen, width, height)`. */
export function pictureOf(root) {
  const world = svgElement("g"), extent = [Infinity, Infinity, -Infinity, -Infinity]
  for (const child of root.childNodes) addNode(child, { target: world, extent, window: null })
  const [left, top, right, bottom] = extent, width = Math.ceil(right - left + 2 * MARGIN), height = Math.ceil(bottom - top + 2 * MARGIN)
  world.setAttribute("transform", `translate(${MARGIN - left} ${MARGIN - top})`)
  return svgFile([world], width, height, getComputedStyle(root).backgroundColor)
}

/** @param {{ target: SVGElement, extent: number[], window: DOMRect | null }} place where shapes go, what they cover, what is cut off */
function addNode(node, place) {
  if (node.nodeType === Node.TEXT_NODE) return addText(node, place)
  if (node.nodeType !== Node.ELEMENT_NODE || node.matches(CONTROLS)) return
  const style = getComputedStyle(node), box = node.getBoundingClientRect()
  if (style.display === "none" || style.visibility === "hidden" || isBeyond(box, place.window)) return
  if (node.tagName === "svg") return addSvg(node, box, place)
  addBox(box, style, place)
  const inner = { ...place }
  if (Number(style.opacity) < 1) inner.target = inner.target.appendChild(svgElement("g", { opacity: style.opacity }))
  if (style.overflowX !== "visible") {
    grow(place.extent, box)
    Object.assign(inner, { target: inner.target.appendChild(clippedGroup(box.x, box.y, box.width, box.height)), window: box, extent: [...place.extent] })
  }
  if (node.drawn) return addDrawn(node, box, inner)
  const children = node.tagName === "TABLE" ? [...node.childNodes].toReversed() : node.childNodes // a head that sticks lies over the rows
  for (const child of children) addNode(child, inner)
}

const isBeyond = (box, window) => Boolean(window && box.height) && (box.bottom <= window.top || box.top >= window.bottom)

function grow(extent, { left, top, right, bottom }) {
  extent[0] = Math.min(extent[0], left)
  extent[1] = Math.min(extent[1], top)
  extent[2] = Math.max(extent[2], right)
  extent[3] = Math.max(extent[3], bottom)
}

function addDrawn(node, box, { target, extent }) {
  const group = target.appendChild(svgElement("g", { transform: `translate(${box.x} ${box.y})` }))
  node.drawn(new SvgPen(group), box.width, box.height)
  grow(extent, box)
}

function addSvg(node, box, { target, extent }) {
  const copy = node.cloneNode(true)
  copyStyles(node, copy)
  for (const [name, value] of Object.entries({ x: box.x, y: box.y, width: box.width, height: box.height })) copy.setAttribute(name, value)
  target.append(copy)
  grow(extent, box)
}

function addBox(box, style, { target, extent }) {
  const sides = ["Top", "Right", "Bottom", "Left"].map(side => ({ width: parseFloat(style[`border${side}Width`]), colour: style[`border${side}Color`] }))
  const lined = sides.some(({ width }) => width > 0), filled = plainColour(style.backgroundColor)[1] > 0
  if (!box.width || !box.height || !(lined || filled)) return
  grow(extent, box)
  const even = sides.every(({ width, colour }) => width === sides[0].width && colour === sides[0].colour), w = even ? sides[0].width : 0
  const line = w ? { ...paint("stroke", sides[0].colour), "stroke-width": w, "stroke-dasharray": style.borderTopStyle === "dashed" ? "3 2" : "none" } : {}
  target.append(svgElement("rect", { x: box.x + w / 2, y: box.y + w / 2, width: box.width - w, height: box.height - w,
    rx: Math.min(parseFloat(style.borderTopLeftRadius) || 0, box.height / 2), ...paint("fill", style.backgroundColor), ...line }))
  if (even) return
  const { left, top, right, bottom } = box, ends = [[left, top, right, top], [right, top, right, bottom], [left, bottom, right, bottom], [left, top, left, bottom]]
  sides.forEach(({ width, colour }, i) => {
    const [x1, y1, x2, y2] = ends[i]
    if (width) target.append(svgElement("line", { x1, y1, x2, y2, ...paint("stroke", colour), "stroke-width": width }))
  })
}

/** Each line of a text where the browser set it; another face keeps the width. */
function addText(node, { target, extent }) {
  if (!node.data.trim()) return
  const style = getComputedStyle(node.parentElement), size = parseFloat(style.fontSize)
  for (const { text, box } of linesOf(node)) {
    grow(extent, box)
    target.append(svgElement("text", { x: box.left, y: box.top + box.height * 0.5 + size * 0.35, "font-size": size, "font-weight": style.fontWeight,
      "font-style": style.fontStyle, textLength: box.width.toFixed(1), lengthAdjust: "spacingAndGlyphs", style: "white-space: pre",
      ...(style.fontFamily.includes("mono") ? { "font-family": "monospace" } : {}), ...paint("fill", style.color) }, text))
  }
}

function linesOf(node) {
  const range = document.createRange(), lines = []
  range.selectNodeContents(node)
  if (range.getClientRects().length === 1) return [{ text: node.data.replace(/\s+/g, " "), box: range.getBoundingClientRect() }]
  for (let at = 0; at < node.length; at += 1) {
    range.setStart(node, at)
    range.setEnd(node, at + 1)
    const box = range.getBoundingClientRect(), line = lines.at(-1)
    if (!box.width) continue
    if (line && Math.abs(line.box.top - box.top) < 2) {
      line.text += node.data[at]
      line.box = DOMRect.fromRect({ x: line.box.x, y: line.box.y, width: box.right - line.box.x, height: line.box.height })
    } else lines.push({ text: node.data[at], box })
  }
  return lines
}

/** The computed look of a drawing as attributes of its copy. */
export function copyStyles(from, to) {
  const style = getComputedStyle(from)
  for (const name of STYLED) to.setAttribute(name, style.getPropertyValue(name))
  for (const name of ["fill", "stroke"]) {
    if (!/^(color|ok|rgba)/.test(to.getAttribute(name))) continue
    const plain = paint(name, to.getAttribute(name), Number(to.getAttribute(`${name}-opacity`)))
    for (const [key, value] of Object.entries(plain)) to.setAttribute(key, value)
  }
  to.removeAttribute("class")
  to.removeAttribute("style")
  if (from.tagName === "text" && from.firstChild) {
    to.setAttribute("textLength", from.getComputedTextLength().toFixed(1))
    to.setAttribute("lengthAdjust", "spacingAndGlyphs")
  }
  if (from.dataset?.at) to.setAttribute("transform", `translate(${from.dataset.at})`)
  for (let i = 0; i < from.children.length; i++) copyStyles(from.children[i], to.children[i])
}
