// The details panel and the search field on the stage.

import { button, element, iconButton } from "../../kit/base.js"

export function createDetails(host, { onClose, onGo, onOpenBox }) {
  host.hidden = true
  host.setAttribute("role", "region")
  host.setAttribute("aria-label", "Details of the chosen node")
  host.setAttribute("aria-live", "polite")
  const links = (label, cards) => {
    const cell = element("dd")
    for (const card of cards.slice(0, 12)) {
      cell.append(button("link", card.name, "", () => onGo(card.id)))
    }
    if (cards.length > 12) cell.append(element("span", "more", `and ${cards.length - 12} more`))
    return cards.length ? [element("dt", "", label), cell] : []
  }
  return {
    hide() { host.hidden = true },
    show(card, sources, targets) {
      const head = element("header")
      head.append(element("strong", "", card.title), iconButton("close", "Close (Escape)", onClose))
      const list = element("dl")
      for (const [label, text] of card.details) if (text) {
        const cell = element("dd", label.startsWith("saved") ? "saved" : "", text)
        if (/NaN|∞/.test(text)) cell.classList.add("fault")
        list.append(element("dt", "", label), cell)
      }
      list.append(...links("from", sources), ...links("to", targets))
      host.replaceChildren(head, list)
      if (card.kind === "box") host.append(button("wide", "Open this box", "", () => onOpenBox(card.box)))
      host.hidden = false
      host.scrollTop = 0
    },
  }
}

export function createSearch(host, { onFound, onClose }) {
  host.hidden = true
  const input = element("input")
  input.type = "text"
  input.placeholder = "operation, name, line 3"
  input.setAttribute("aria-label", "Search the graph")
  const count = element("span", "found")
  count.setAttribute("role", "status")
  let cards = [], hits = [], at = 0
  const look = () => {
    const words = input.value.trim().toLowerCase()
    hits = words ? cards.filter(card => card.find.includes(words)) : []
    at = 0
    report()
  }
  const report = () => {
    count.textContent = input.value.trim() ? (hits.length ? `${at + 1} of ${hits.length}` : "nothing found") : ""
    onFound(hits, hits[at])
  }
  const move = by => {
    if (!hits.length) return
    at = (at + by + hits.length) % hits.length
    report()
  }
  const close = () => {
    host.hidden = true
    input.value = ""
    look()
    onClose()
  }
  input.addEventListener("input", look)
  // Keys typed here are text: neither the figure nor the page may take them for commands.
  input.addEventListener("keydown", event => {
    event.stopPropagation()
    if (event.key === "Enter") { event.preventDefault(); move(event.shiftKey ? -1 : 1) }
    if (event.key === "ArrowDown" || event.key === "ArrowUp") { event.preventDefault(); move(event.key === "ArrowUp" ? -1 : 1) }
    if (event.key === "Escape") close()
  })
  host.append(input, count, iconButton("up", "Previous match (Shift+Enter)", () => move(-1)),
    iconButton("down", "Next match (Enter)", () => move(1)), iconButton("close", "Close search (Escape)", close))
  return {
    open() { host.hidden = false; input.focus(); input.select() },
    setCards(newCards) { cards = newCards; if (!host.hidden) look() },
    get isOpen() { return !host.hidden },
    close,
  }
}
