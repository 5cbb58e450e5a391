// The picture as a file that needs nothing else: styles written into the elements.

import { element, svgElement } from "../../kit/base.js"

const STYLED = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-size", "font-weight", "display", "visibility"]
const FACE = "'Source Sans 3', 'Source Sans Pro', Helvetica, Arial, sans-serif"

function copyStyles(from, to) {
  const style = getComputedStyle(from)
  for (const name of STYLED) to.setAttribute(name, style.getPropertyValue(name))
  to.removeAttribute("class")
  if (from.tagName === "text" && from.firstChild) {
    to.setAttribute("textLength", from.getComputedTextLength().toFixed(1)) // another face keeps the width that was drawn for
    to.setAttribute("lengthAdjust", "spacingAndGlyphs")
  }
  const moved = from.dataset?.at
  if (moved) {
    to.removeAttribute("style")
    to.setAttribute("transform", `translate(${moved})`)
  }
  for (let i = 0; i < from.children.length; i++) copyStyles(from.children[i], to.children[i])
}

// `heading` is a list of lines above the picture; `legend` a list of {text, fill, line, dash}.
export function pictureFile(world, stage, heading, legend) {
  const far = stage.classList.contains("far")
  stage.classList.remove("far")
  stage.classList.add("still")
  const copy = world.cloneNode(true), box = world.getBBox()
  copyStyles(world, copy)
  stage.classList.toggle("far", far)
  stage.classList.remove("still")
  const margin = 24, top = 24 + 18 * heading.length
  copy.removeAttribute("style")
  copy.setAttribute("transform", `translate(${margin - box.x} ${top - box.y})`)
  const style = getComputedStyle(stage), ink = style.getPropertyValue("--ink"), height = box.height + top + 54
  const items = [copy, ...heading.map((line, i) => svgElement("text", { x: margin, y: 26 + 18 * i, fill: ink, "font-size": i ? 12 : 15, "font-weight": i ? 400 : 600 }, line))]
  let x = margin
  for (const item of legend) {
    items.push(svgElement("rect", { x, y: height - 28, width: 12, height: 12, rx: 3, fill: item.fill, stroke: item.line, "stroke-width": 1.4, "stroke-dasharray": item.dash || "none" }),
      svgElement("text", { x: x + 18, y: height - 18, fill: ink, "font-size": 12 }, item.text))
    x += 34 + 6.6 * item.text.length
  }
  const width = Math.max(box.width + 2 * margin, x)
  const file = svgElement("svg", { xmlns: "http://www.w3.org/2000/svg", width, height, viewBox: `0 0 ${width} ${height}`, "font-family": FACE })
  file.append(svgElement("rect", { width, height, fill: style.backgroundColor }), ...items)
  return new XMLSerializer().serializeToString(file)
}

export function saveFile(name, text, type) {
  const url = URL.createObjectURL(new Blob([text], { type }))
  const link = element("a")
  link.href = url
  link.download = name
  link.click()
  setTimeout(() => URL.revokeObjectURL(url), 10000)
}
