// The lines above the picture: totals, what is not shown, the legend, the choice of pass.

import { element, icon } from "../../kit/base.js"

const LEGEND = [
  ["leaf", "leaf"], ["function", "function"], ["view", "view"], ["in-place", "in-place"], ["custom", "custom Function"],
  ["checkpoint", "checkpoint"], ["output", "output"], ["box", "folded"],
]
const TAG_LEGEND = [["kept", "kept for backward"], ["freed", "freed"], ["changed", "changed since"], ["placeholder", "recomputed"]]

export function writeHeading(parts, data, onPass) {
  const totals = data.totals.map(text => element("span", /changed/.test(text) ? "faulty" : "", text))
  parts.totals.replaceChildren(...totals, ...data.caveats.map(text => element("span", "caveat", text)))
  parts.passes.replaceChildren(...data.passes.map(text => element("option", "", text)))
  parts.passes.selectedIndex = data.pass
  parts.passes.hidden = data.passes.length < 2
  parts.passes.onchange = () => onPass(parts.passes.selectedIndex)
  parts.legend.replaceChildren(...legendEntries(data))
}

// Only what occurs in this picture.
function legendEntries(data) {
  const kinds = new Set(data.nodes.map(card => card.kind)), tags = data.nodes.flatMap(card => card.tags)
  const states = new Set(tags.map(tag => tag.state))
  if (tags.some(tag => tag.freed_at !== null)) states.add("freed")
  const entry = (name, text) => {
    const item = element("span", "entry")
    item.append(element("i", `swatch ${name}`), text)
    return item
  }
  const direction = element("span", "entry direction")
  direction.append(icon(data.across ? "right" : "down"), "data", icon(data.across ? "left" : "up"), "gradients")
  return [direction, ...LEGEND.filter(([kind]) => kinds.has(kind)).map(([kind, text]) => entry(`kind-${kind}`, text)),
    ...TAG_LEGEND.filter(([state]) => states.has(state)).map(([state, text]) => entry(`tag ${state}`, text)),
    ...siteEntries(data, entry), ...(data.nodes.some(card => card.own) ? [entry("own", "not in the graph beside it")] : [])]
}

// The lines of a finding, where they made something that is drawn.
function siteEntries(data, entry) {
  const drawn = new Set(data.nodes.flatMap(card => card.lines ?? [card.line]))
  const sites = (data.sites ?? []).filter(site => drawn.has(site.line))
  const first = sites.find(site => site.rank === 0), others = [...new Set(sites.filter(site => site.rank && site.role !== first?.role).map(site => site.role))]
  return [...(first ? [entry("site-first", first.role)] : []), ...(others.length ? [entry("site-other", others.join(", "))] : [])]
}

export function legendForFile(parts, across) {
  const entries = [...parts.legend.querySelectorAll(".entry:not(.direction)")].map(entry => {
    const style = getComputedStyle(entry.firstChild)
    return { text: entry.textContent, fill: style.backgroundColor, line: style.borderLeftColor, dash: style.borderTopStyle === "dashed" ? "3 2" : "" }
  })
  return [...entries, { text: across ? "data flows to the right, gradients to the left" : "data flows down, gradients flow up", fill: "none", line: "none" }]
}

// How many boxes each line of the program has in the picture.
export function lineCounts(cards) {
  const counts = new Map()
  for (const line of cards.flatMap(card => card.lines ?? [card.line])) if (line) counts.set(line, (counts.get(line) || 0) + 1)
  return counts
}
