// The whole picture as a file, with its totals and its legend.

import { svgElement } from "../../kit/base.js"
import { copyStyles, svgFile } from "../../kit/save.js"

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
  return svgFile(items, width, height, style.backgroundColor)
}
