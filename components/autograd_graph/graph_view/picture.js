// The drawn graph and what is lit in it: paths to the loss, lines, matches, backward steps.

import { drawEdge, drawFrame, drawNode, farTitleSize, paintTag, setNumbers, showGradient, squeezeNode } from "./draw.js"
import { svgElement } from "../../kit/base.js"

export function createPicture(stage, world) {
  const layers = Object.fromEntries(["frames", "edges", "nodes", "labels"].map(name => [name, svgElement("g", { class: name })]))
  world.append(...Object.values(layers))
  const nodes = new Map(), edges = new Map()
  let scene = null

  const showNode = card => {
    const known = nodes.get(card.id)?.node
    const parts = drawNode(card)
    if (known) {
      parts.node.style.transform = known.style.transform
      known.replaceWith(parts.node)
    } else layers.nodes.append(parts.node)
    parts.node.style.setProperty("--far-size", `${farTitleSize(card)}px`)
    parts.node.dataset.at = `${card.x - card.w / 2} ${card.y - card.h / 2}`
    const place = () => { parts.node.style.transform = `translate(${card.x - card.w / 2}px, ${card.y - card.h / 2}px)` }
    if (known) requestAnimationFrame(place)
    else place()
    nodes.set(card.id, parts)
  }
  const classify = (map, name, chosen) => { for (const [id, part] of map) (part.node ?? part.group).classList.toggle(name, chosen.has(id)) }

  const picture = {
    nodes,
    show(newScene) {
      scene = newScene
      const kept = new Set(scene.nodes.map(card => card.id))
      for (const [id, parts] of nodes) if (!kept.has(id)) { parts.node.remove(); nodes.delete(id) }
      scene.nodes.forEach(showNode)
      layers.frames.replaceChildren(...scene.frames.map(drawFrame))
      edges.clear()
      for (const edge of scene.edges) if (edge.points.length > 1) edges.set(edge.id, drawEdge(edge))
      layers.edges.replaceChildren(...[...edges.values()].map(parts => parts.group))
      requestAnimationFrame(picture.squeeze)
    },
    squeeze() { for (const parts of nodes.values()) squeezeNode(parts) },
    neighbours(id, from, to) { return scene.edges.filter(e => e[from] === id).map(e => nodes.get(e[to])?.card).filter(Boolean) },

    // Everything between a node and the end of the graph. Reachability, never paths: their number can double at every node.
    path(id) {
      const onPath = new Set(id === null ? [] : [id])
      const below = new Map()
      for (const edge of scene.edges) below.set(edge.s, [...(below.get(edge.s) ?? []), edge])
      const lit = new Set()
      for (const at of onPath) for (const edge of below.get(at) ?? []) { lit.add(edge.id); onPath.add(edge.t) }
      stage.classList.toggle("pathing", id !== null)
      classify(nodes, "onpath", onPath)
      classify(edges, "onpath", lit)
    },
    light(name, cards) {
      stage.classList.toggle(name, cards.length > 0)
      classify(nodes, `is-${name}`, new Set(cards.map(card => card.id)))
    },
    // What the lines of a finding made: the first line with more weight.
    markSites(sites) {
      const of = chosen => new Set(scene.nodes.filter(card => sites.some(s => chosen(s) && (card.lines ?? [card.line]).includes(s.line))).map(card => card.id))
      const first = of(s => s.rank === 0)
      classify(nodes, "site-first", first)
      classify(nodes, "site-other", new Set([...of(s => s.rank > 0)].filter(id => !first.has(id))))
    },
    select(id) { classify(nodes, "selected", new Set([id])) },
    step(position) { paintStep(scene, position, { stage, nodes, edges, labels: layers.labels }) },
  }
  return picture
}

// State of the whole picture after `position` steps: which nodes ran, which gradients are still forming.
function paintStep(scene, position, { stage, nodes, edges, labels }) {
  const stepping = position > 0
  const ran = new Map(), forming = new Map(), carried = new Set()
  for (const step of scene.steps.slice(0, position)) {
    ran.set(step.item, step.grad)
    forming.delete(step.item)
    for (const given of step.given) {
      carried.add(given.edge)
      forming.set(given.to, given.so_far || given.text)
    }
  }
  const now = stepping ? scene.steps[position - 1] : null
  stage.classList.toggle("stepping", stepping)
  for (const [id, parts] of nodes) {
    parts.node.classList.toggle("done", ran.has(id))
    parts.node.classList.toggle("forming", forming.has(id))
    parts.node.classList.toggle("now", now?.item === id)
    const grad = stepping && parts.card.kind !== "box" ? (forming.get(id) ?? ran.get(id) ?? "") : parts.card.grad
    showGradient(parts, grad)
    for (const tag of parts.tags) paintTag(tag, tag.tag.freed_at !== null && tag.tag.freed_at < position)
  }
  const given = new Map((now?.given ?? []).map(g => [g.edge, g]))
  for (const [id, parts] of edges) {
    parts.group.classList.toggle("giving", given.has(id))
    parts.group.classList.toggle("carried", carried.has(id))
  }
  labels.replaceChildren()
  const taken = []
  if (now) for (const parts of nodes.values()) {
    const { x, y, w, h } = parts.card
    taken.push([x - w / 2, y - h / 2, x + w / 2, y + h / 2])
  }
  const sums = new Map([...given.values()].filter(g => g.sum).map(g => [g.to, g.sum]))
  for (const [id, sum] of sums) if (nodes.has(id)) labelSum(labels, nodes.get(id).card, sum, taken)
  for (const [id, g] of given) if (edges.has(id)) labelEdge(labels, edges.get(id), g, taken)
}

function pill(labels, className, text, title) {
  const group = svgElement("g", { class: className })
  const label = svgElement("text", { "text-anchor": "middle", y: 4 })
  setNumbers(label, text)
  const back = svgElement("rect", { rx: 8, y: -9, height: 18 })
  group.append(back, label)
  if (title) group.append(svgElement("title", {}, title))
  labels.append(group)
  const width = label.getComputedTextLength() + 14
  back.setAttribute("width", width)
  back.setAttribute("x", -width / 2)
  return { group, width }
}

// The first place along the edge, from its middle outwards, where the text covers no card and no other text.
function labelEdge(labels, { line }, given, taken) {
  const { group, width } = pill(labels, "handed", given.text, given.exact)
  const length = line.getTotalLength()
  const spot = share => {
    const { x, y } = line.getPointAtLength(length * share)
    return [x - width / 2, y - 10, x + width / 2, y + 10]
  }
  const free = box => taken.every(t => box[2] <= t[0] || box[0] >= t[2] || box[3] <= t[1] || box[1] >= t[3])
  const share = [0.5, 0.4, 0.6, 0.3, 0.7, 0.2, 0.8, 0.12, 0.88].find(s => free(spot(s))) ?? 0.5
  const box = spot(share)
  taken.push(box)
  group.setAttribute("transform", `translate(${(box[0] + box[2]) / 2} ${box[1] + 10})`)
}

function labelSum(labels, card, sum, taken) {
  const { group, width } = pill(labels, "sum", sum)
  const y = card.y + card.h / 2 + 6
  taken.push([card.x - width / 2, y - 9, card.x + width / 2, y + 9])
  group.setAttribute("transform", `translate(${card.x} ${y})`)
}
