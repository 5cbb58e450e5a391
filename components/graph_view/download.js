// The picture as a file that needs nothing else: styles written into the elements.

const STYLED = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-size", "font-weight", "display", "visibility"]
const FACE = "'Source Sans 3', 'Source Sans Pro', Helvetica, Arial, sans-serif"

function copyStyles(from, to) {
  const style = getComputedStyle(from)
  for (const name of STYLED) to.setAttribute(name, style.getPropertyValue(name))
  to.removeAttribute("class")
  const moved = from.dataset?.at
  if (moved) {
    to.removeAttribute("style")
    to.setAttribute("transform", `translate(${moved})`)
  }
  for (let i = 0; i < from.children.length; i++) copyStyles(from.children[i], to.children[i])
}

// `heading` is a list of lines above the picture; `legend` a list of {text, fill, line}.
function pictureFile(world, stage, [width, height], heading, legend) {
  const far = stage.classList.contains("far")
  stage.classList.remove("far")
  const copy = world.cloneNode(true)
  copyStyles(world, copy)
  stage.classList.toggle("far", far)
  copy.removeAttribute("style")
  const top = 24 + 18 * heading.length, margin = 24
  copy.setAttribute("transform", `translate(${margin} ${top})`)
  const style = getComputedStyle(stage), ink = style.getPropertyValue("--ink"), total = [Math.max(width, 420) + 2 * margin, height + top + 54]
  const file = svgElement("svg", { xmlns: "http://www.w3.org/2000/svg", width: total[0], height: total[1], viewBox: `0 0 ${total[0]} ${total[1]}`, "font-family": FACE })
  file.append(svgElement("rect", { width: "100%", height: "100%", fill: style.backgroundColor }))
  heading.forEach((line, i) => file.append(svgElement("text", { x: margin, y: 26 + 18 * i, fill: ink, "font-size": i ? 12 : 15, "font-weight": i ? 400 : 600 }, line)))
  let x = margin
  for (const item of legend) {
    file.append(svgElement("rect", { x, y: total[1] - 28, width: 12, height: 12, rx: 3, fill: item.fill, stroke: item.line, "stroke-width": 1.4, "stroke-dasharray": item.dash || "none" }),
      svgElement("text", { x: x + 18, y: total[1] - 18, fill: ink, "font-size": 12 }, item.text))
    x += 34 + 6.4 * item.text.length
  }
  file.append(copy)
  file.setAttribute("width", Math.max(total[0], x))
  file.setAttribute("viewBox", `0 0 ${Math.max(total[0], x)} ${total[1]}`)
  return new XMLSerializer().serializeToString(file)
}

function saveFile(name, text, type) {
  const url = URL.createObjectURL(new Blob([text], { type }))
  const link = element("a")
  link.href = url
  link.download = name
  link.click()
  setTimeout(() => URL.revokeObjectURL(url), 10000)
}
