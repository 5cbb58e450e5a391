// What is alive at the chosen instant, grouped by category, module or operation.

import { bytesText, button, element, exactText } from "../../kit/base.js"

const GROUPINGS = ["category", "module", "operation"]
const MOST_GROUPS = 12

export class Alive {
  grouping = 0

  constructor(host) {
    this.host = host
    this.head = element("div", "alive-head")
    this.switch = element("div", "grouping")
    this.switch.setAttribute("role", "group")
    this.switch.setAttribute("aria-label", "Group by")
    this.buttons = GROUPINGS.map((name, i) => button("tool text", name, "", () => this.group(i)))
    this.switch.append(...this.buttons)
    this.list = element("div", "alive-list")
    this.list.tabIndex = 0
    this.list.setAttribute("role", "list")
    this.list.setAttribute("aria-label", "What is alive")
    host.append(this.head, this.switch, this.list)
  }

  show(data) {
    this.data = data
  }

  group(number) {
    this.grouping = number % GROUPINGS.length
    this.paint(this.row)
  }

  paint(row) {
    this.row = row
    this.buttons.forEach((made, i) => made.setAttribute("aria-pressed", i === this.grouping))
    const { index, op, phase, module, step, line } = this.data
    const word = column => column.words[column.at[row]]
    const total = this.data.layers.reduce((sum, layer) => sum + layer.bytes[row], 0)
    const unseen = this.data.unseen?.[row]
    const place = index[row] < 0 ? "Before the first operation" : `Operation ${index[row].toLocaleString("en")}: ${word(op)}`
    const where = index[row] < 0 ? "" : [word(phase).replace("_", " "), word(module), `step ${step[row] + 1}`, line[row] ? `line ${line[row]}` : ""].filter(Boolean).join(" · ")
    this.head.replaceChildren(element("strong", "", place), element("span", "where", where), element("span", "total", `${exactText(total)} alive${unseen ? `, and ${bytesText(unseen)} that only the allocator sees` : ""}`))
    const groups = this.#groups(row)
    const rows = groups.slice(0, MOST_GROUPS).map(group => this.#row(group, total))
    const rest = groups.slice(MOST_GROUPS)
    if (rest.length) rows.push(element("div", "rest", `and ${rest.length} more with ${bytesText(rest.reduce((sum, g) => sum + g.bytes, 0))}`))
    this.list.replaceChildren(...rows)
  }

  #groups(row) {
    const { lives, storages, categories } = this.data, found = new Map()
    for (let i = 0; i < lives.first.length; i++) {
      if (row < lives.first[i] || row >= lives.end[i]) continue
      const storage = lives.storage[i], category = categories[lives.category[i]]
      const of = column => storages[column].words[storages[column].at[storage]]
      const key = this.grouping === 0 ? category.label : this.grouping === 1 ? moduleOf(of) : of("op")
      const group = found.get(key) ?? { key, bytes: 0, count: 0, parts: new Map(), largest: null }
      group.bytes += lives.bytes[i]
      group.count += 1
      group.parts.set(category.hue, (group.parts.get(category.hue) ?? 0) + lives.bytes[i])
      if (!group.largest || lives.bytes[i] > group.largest.bytes) group.largest = { bytes: lives.bytes[i], text: this.#storageText(of) }
      found.set(key, group)
    }
    return [...found.values()].sort((a, b) => b.bytes - a.bytes)
  }

  #storageText(of) {
    const place = [of("name") || of("op"), of("module")].filter(Boolean).join(", ")
    return `${place}, ${of("shape")} ${of("dtype")}`
  }

  #row(group, total) {
    const row = element("div", "alive-row")
    row.setAttribute("role", "listitem")
    const bar = element("div", "bar-line")
    for (const [hue, bytes] of group.parts) {
      const part = element("i", "")
      part.style.width = `${(100 * bytes) / Math.max(total, 1)}%`
      part.style.background = `var(--${hue})`
      bar.append(part)
    }
    row.title = `${group.key}: ${exactText(group.bytes)} in ${group.count.toLocaleString("en")} tensors. Largest: ${group.largest.text}, ${exactText(group.largest.bytes)}`
    row.append(element("span", "key", group.key), element("span", "size", bytesText(group.bytes)), bar, element("span", "largest", group.count > 1 ? `${group.count.toLocaleString("en")} tensors; largest: ${group.largest.text}` : group.largest.text))
    return row
  }
}

// A parameter belongs to the module that registered it, what a module made to that module.
function moduleOf(of) {
  const name = of("name")
  if (of("phase") === "start" && name.includes(".")) return name.slice(0, name.lastIndexOf("."))
  return of("module") || name || "outside all modules"
}
