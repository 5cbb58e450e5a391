// The program beside the picture: numbered, lightly coloured, its lines linked with the nodes they made.

import { element } from "../../kit/base.js"
import { colouredLines } from "../../kit/colouring.js"

export function createListing(host, { onHover, onPick }) {
  let program = null, rows = []
  const body = element("ol", "code")
  host.append(body)
  const draw = (text, fault, sites, own) => {
    rows = colouredLines(text.replace(/\n+$/, "")).map((pieces, i) => {
      const row = element("li", "row")
      row.dataset.line = i + 1
      const code = element("code")
      code.append(...pieces.map(([kind, piece]) => element("span", kind, piece)))
      row.append(element("span", "number", i + 1), code)
      return row
    })
    if (fault?.line && rows[fault.line - 1]) {
      rows[fault.line - 1].classList.add("faulty")
      rows[fault.line - 1].append(element("span", "fault-text", `${fault.type}: ${fault.message}`))
    }
    for (const { line, rank, text: words } of sites) if (rows[line - 1]) {
      rows[line - 1].classList.add("site", rank ? "other" : "first")
      rows[line - 1].append(element("span", "role", words))
    }
    for (const line of own) rows[line - 1]?.classList.add("own")
    body.replaceChildren(...rows)
  }
  const lineOf = event => Number(event.target.closest?.(".row.linked")?.dataset.line) || null
  body.addEventListener("pointerover", event => onHover(lineOf(event)))
  body.addEventListener("pointerleave", () => onHover(null))
  body.addEventListener("click", event => { const line = lineOf(event); if (line) onPick(line) })
  body.addEventListener("keydown", event => {
    const line = lineOf(event)
    if (line && (event.key === "Enter" || event.key === " ")) { event.preventDefault(); event.stopPropagation(); onPick(line) }
  })
  return {
    show(text, fault, counts, { sites = [], ownLines = [] }) {
      const key = JSON.stringify([text, fault, sites, ownLines])
      if (key !== program) draw(text, fault, sites, ownLines)
      program = key
      rows.forEach((row, i) => {
        const count = counts.get(i + 1) || 0
        row.classList.toggle("linked", count > 0)
        row.tabIndex = count ? 0 : -1
        if (count) row.setAttribute("aria-label", `line ${i + 1}, ${count === 1 ? "1 box" : `${count} boxes`} of the picture`)
        row.title = count ? "Click: mark what this line made" : ""
      })
    },
    // The line that a finding points at.
    point(line) { rows.forEach((row, i) => row.classList.toggle("pointed", line === i + 1)) },
    // Marks the lines that a node comes from, the line that a visitor chose, and the lines that changed a saved tensor.
    mark(lines, chosen, changed) {
      rows.forEach((row, i) => {
        row.classList.toggle("marked", lines.includes(i + 1))
        row.classList.toggle("chosen", chosen === i + 1)
        row.classList.toggle("changing", changed.includes(i + 1))
      })
      const first = rows[(lines[0] ?? 0) - 1]
      if (first && lines.length < 4) {
        const above = first.offsetTop - host.scrollTop, below = above + first.offsetHeight - host.clientHeight
        if (above < 0) host.scrollTop += above - 24
        else if (below > 0) host.scrollTop += below + 24
      }
    },
  }
}
