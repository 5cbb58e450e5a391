// A pen with the methods of a canvas that writes SVG: what a figure paints on its canvas can be saved as shapes.

import { svgElement } from "./base.js"

const ANCHORS = { left: "start", start: "start", center: "middle", right: "end", end: "end" }
const RISE = { middle: 0.34, alphabetic: 0, top: 0.8 } // baseline below the named line, in em
const known = new Map()
let dot = null

/** A CSS colour in any notation as "#rrggbb" and an opacity of 0 to 1. */
export function plainColour(css) {
  if (!known.has(css)) {
    dot ??= new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true })
    dot.clearRect(0, 0, 1, 1)
    dot.fillStyle = css
    dot.fillRect(0, 0, 1, 1)
    const [red, green, blue, alpha] = dot.getImageData(0, 0, 1, 1).data
    known.set(css, [`#${[red, green, blue].map(part => part.toString(16).padStart(2, "0")).join("")}`, Math.round(alpha / 2.55) / 100])
  }
  return known.get(css)
}

/** A colour as the attributes of a shape: `paint("fill", "rgb(0 0 0 / 0.5)")`. */
export function paint(name, css, alpha = 1) {
  const [colour, own] = plainColour(css)
  return { [name]: own ? colour : "none", ...(own * alpha < 1 && own ? { [`${name}-opacity`]: own * alpha } : {}) }
}

/** A window of the drawing: its children keep their coordinates, and what is outside is cut. */
export function clippedGroup(x, y, width, height) {
  const size = { width: Math.max(0, width), height: Math.max(0, height) }
  return svgElement("svg", { x, y, ...size, viewBox: `${x} ${y} ${size.width} ${size.height}` })
}

/** The part of a 2d context that figures use. Shapes go to `target`, an SVG group. */
export class SvgPen {
  fillStyle = "#000"
  strokeStyle = "#000"
  lineWidth = 1
  globalAlpha = 1
  font = "10px sans-serif"
  textAlign = "left"
  textBaseline = "alphabetic"
  #target
  #saved = []
  #path = ""
  #box = [0, 0, 0, 0]

  constructor(target) {
    this.#target = target
  }

  #add(tag, attributes, text) {
    this.#target.append(svgElement(tag, attributes, text))
  }

  fillRect(x, y, width, height) {
    this.#add("rect", { x, y, width: Math.max(0, width), height: Math.max(0, height), ...paint("fill", this.fillStyle, this.globalAlpha) })
  }

  strokeRect(x, y, width, height) {
    this.#add("rect", { x, y, width: Math.max(0, width), height: Math.max(0, height), fill: "none", ...this.#line() })
  }

  fillText(text, x, y) {
    const [, size, family] = this.font.match(/([\d.]+)px (.*)/)
    this.#add("text", { x, y: y + RISE[this.textBaseline] * size, "font-size": size, "font-family": family, "text-anchor": ANCHORS[this.textAlign],
      ...paint("fill", this.fillStyle, this.globalAlpha) }, text)
  }

  beginPath() { this.#path = "" }
  moveTo(x, y) { this.#path += `M${x} ${y}` }
  lineTo(x, y) { this.#path += `${this.#path ? "L" : "M"}${x} ${y}` }
  rect(x, y, width, height) { this.#box = [x, y, width, height] }
  stroke() { if (this.#path) this.#add("path", { d: this.#path, fill: "none", ...this.#line() }) }
  fill() { if (this.#path) this.#add("path", { d: this.#path, ...paint("fill", this.fillStyle, this.globalAlpha) }) }

  save() { this.#saved.push(this.#target) }
  restore() { this.#target = this.#saved.pop() }

  /** Cuts at the last `rect`, until `restore`. */
  clip() {
    const group = clippedGroup(...this.#box)
    this.#target.append(group)
    this.#target = group
  }

  #line() { return { ...paint("stroke", this.strokeStyle, this.globalAlpha), "stroke-width": this.lineWidth } }
}
