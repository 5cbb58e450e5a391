// Rows are made from the call tree: grouped, sorted, opened and searched here, without a rerun.

import { button, element, figureAt, isDark, scaledText, secondsText } from "../../kit/base.js"
import { pictureOf, saveButtons, saveFile } from "../../kit/save.js"

const GROUPS = [
  ["name", "Operator", row => row.name],
  ["shape", "Shape", row => `${row.name}|${row.shapes}`],
  ["module", "Module", row => `${row.name}|${row.module}`],
  ["stack", "Line", row => `${row.name}|${row.line}|${row.stack}`],
  ["tree", "Call tree", row => row.name],
]
const COLUMNS = [
  ["name", "operator", "What PyTorch's dispatcher ran. Open a row to see what it called: its total is its self time plus the totals below it."],
  ["self", "self and total, per step", "Dark bar: self time, in the operator itself. Light bar: total, with everything it called. Only self times may be added: a second is in the total of every caller."],
  ["calls", "calls", "How often it ran in one step, on average."],
  ["flops", "FLOP", "Floating-point operations per step: a multiplication and an addition are two. Counted for products, convolutions, attention and LSTM. Decimal: k = 10^3, M = 10^6, G = 10^9."],
  ["bytes", "memory", "Allocated minus freed by the operator itself, per step. Negative: it freed more. Binary: KiB = 2^10, MiB = 2^20 bytes."],
  ["place", "from", "Where it comes from: input shapes, module or line, as grouped. Empty when a row joins several."],
]
const DEVICE_COLUMN = ["device", "on the device", "Time of the kernels that it launched itself, each counted once. It runs beside host time: never add the two."]
const MOST = 250

export default figureAt(".operators", createTable)

const bytesText = bytes => bytes === null ? "" : scaledText(bytes, ["B", "KiB", "MiB", "GiB"], 1024)
const flopsText = flops => flops === null ? "–" : scaledText(flops, ["", "k", "M", "G", "T"], 1000).trim()

// --- rows ---------------------------------------------------------------------------------------------------------

const plus = (a, b) => b === null ? a : (a ?? 0) + b
const same = values => values.every(v => v === values[0]) ? values[0] : null

function nodesOf(data) {
  const nodes = data.name.map((name, at) => ({ at, name, children: [], parent: data.parent[at], operator: data.is_operator[at],
    shapes: data.shapes[at], module: data.module[at], line: data.line[at], stack: data.stack[at], calls: data.calls[at],
    self: data.self_s[at], total: data.total_s[at], device: data.device_self_s[at], flops: data.flops[at], bytes: data.bytes[at] }))
  for (const node of nodes) {
    node.above = node.parent >= 0 ? nodes[node.parent] : null
    node.above?.children.push(node)
  }
  return nodes
}

// A call inside another of the same row, as in a recursion, is in its total already.
function outermost(members) {
  const all = new Set(members)
  const inner = node => { for (let at = node.above; at; at = at.above) if (all.has(at)) return true; return false }
  return members.filter(node => !inner(node))
}

function rowOf(id, members, steps) {
  const sum = field => members.reduce((total, m) => total + m[field], 0) / steps
  const known = field => { const total = members.reduce((t, m) => plus(t, m[field]), null); return total === null ? null : total / steps }
  return { id, members, name: members[0].name, operator: members[0].operator, self: sum("self"), total: outermost(members).reduce((total, m) => total + m.total, 0) / steps, calls: sum("calls"),
    device: known("device"), flops: known("flops"), bytes: sum("bytes"), shapes: same(members.map(m => m.shapes)),
    module: same(members.map(m => m.module)), line: same(members.map(m => m.line)), stack: same(members.map(m => m.stack)),
    opens: members.some(m => m.children.length) }
}

function grouped(members, keyOf, prefix, steps) {
  const groups = new Map()
  for (const member of members) {
    const key = keyOf(member)
    if (groups.has(key)) groups.get(key).push(member)
    else groups.set(key, [member])
  }
  return [...groups].map(([key, found]) => rowOf(`${prefix}/${key}`, found, steps))
}

// --- the figure ---------------------------------------------------------------------------------------------------

function createTable(root) {
  let data = null, nodes = [], group = "name", sort = "self", down = true, search = "", wanted = null
  const open = new Set()
  const bar = element("div", "bar"), scroll = element("div", "scroll"), foot = element("div", "foot")
  scroll.tabIndex = 0
  scroll.setAttribute("role", "region")
  scroll.setAttribute("aria-label", "Operators of the profiled steps, with self and total time")
  root.append(bar, scroll, foot)

  const choices = element("div", "choices")
  choices.setAttribute("role", "radiogroup")
  choices.setAttribute("aria-label", "One row is")
  const buttons = GROUPS.map(([id, text]) => {
    const made = button("choice", text, "", () => { group = id; open.clear(); if (id === "tree") openFirst(); draw() })
    made.setAttribute("role", "radio")
    choices.append(made)
    return [id, made]
  })
  const field = element("input", "search")
  field.type = "search"
  field.placeholder = "Search"
  field.setAttribute("aria-label", "Search operators, modules, shapes and lines")
  field.addEventListener("input", () => { search = field.value.toLowerCase(); draw() })
  const save = button("choice alone", "CSV", "", () => saveRows())
  save.title = "Save these rows"
  bar.append(element("span", "label", "One row is"), choices, field, save, ...saveButtons("choice alone", "operators", () => pictureOf(root)))

  const keyOf = () => GROUPS.find(([id]) => id === group)[2]
  const columns = () => {
    const shown = COLUMNS.filter(([id]) => id !== "place" || !["name", "tree"].includes(group))
    return data.device ? [...shown.slice(0, 2), DEVICE_COLUMN, ...shown.slice(2)] : shown
  }
  const roots = () => nodes.filter(node => node.parent < 0)
  const place = row => group === "shape" ? row.shapes : group === "module" ? row.module ?? "" :
    row.stack || row.module || ""

  function openFirst() {
    for (const row of grouped(roots(), keyOf(), "", data.steps)) open.add(row.id)
  }
  function topRows() {
    if (group === "tree") return grouped(roots(), keyOf(), "", data.steps)
    return grouped(nodes.filter(node => node.operator), keyOf(), "", data.steps)
  }
  function ordered(rows) {
    const value = row => sort === "name" ? row.name : sort === "place" ? place(row) ?? "" : row[sort] ?? -Infinity
    const turn = down ? -1 : 1
    return rows.sort((a, b) => turn * (value(a) > value(b) ? 1 : value(a) < value(b) ? -1 : 0))
  }
  function matches(row) {
    return !search || [row.name, row.shapes, row.module, row.stack].some(text => text && String(text).toLowerCase().includes(search))
  }

  function header(table) {
    const line = table.createTHead().insertRow()
    for (const [id, text, help] of columns()) {
      const cell = element("th", `column-${id}`)
      cell.scope = "col"
      cell.setAttribute("aria-sort", sort === id ? (down ? "descending" : "ascending") : "none")
      const arrow = sort === id ? (down ? " ▾" : " ▴") : ""
      const sorter = button("", text + arrow, "", () => { down = sort === id ? !down : id !== "name" && id !== "place"; sort = id; draw() })
      sorter.title = help
      cell.append(sorter)
      line.append(cell)
    }
  }

  function bars(row, scale) {
    const cell = element("td", "column-self")
    const track = element("div", "track"), total = element("div", "total"), own = element("div", "self")
    total.style.width = `${Math.min(100, 100 * row.total / scale)}%`
    own.style.width = `${Math.min(100, 100 * row.self / scale)}%`
    track.append(total, own)
    const text = element("div", "times")
    text.append(element("b", "", secondsText(row.self)), element("span", "", ` of ${secondsText(row.total)}`))
    cell.title = `self ${secondsText(row.self)} (${(100 * row.self / stepS()).toFixed(1)} % of the step), total ${secondsText(row.total)}, per step`
    cell.append(track, text)
    return cell
  }

  function rowLine(body, row, depth, scale) {
    const line = body.insertRow()
    line.className = depth ? "inner" : ""
    const opened = open.has(row.id)
    const name = element("td", "column-name")
    name.style.paddingLeft = `${0.4 + depth * 1.1}rem`
    const toggle = () => {
      if (!row.opens) return
      if (!open.delete(row.id)) open.add(row.id)
      wanted = row.id
      draw()
    }
    const opener = button("opener", row.opens ? (opened ? "▾" : "▸") : "", "", toggle)
    opener.disabled = !row.opens
    opener.setAttribute("aria-expanded", String(opened))
    opener.setAttribute("aria-label", `${opened ? "Close" : "Open"} ${row.name}`)
    opener.dataset.row = row.id
    const text = element("span", row.operator ? "what" : "what range", row.name)
    text.title = row.name
    text.addEventListener("click", toggle)
    name.append(opener, text)
    line.append(name, bars(row, scale))
    if (data.device) line.append(element("td", "column-device number", row.device === null ? "" : secondsText(row.device)))
    line.append(element("td", "column-calls number", row.calls < 10 && row.calls % 1 ? row.calls.toFixed(1) : row.calls.toFixed(0)))
    const flops = element("td", "column-flops number", flopsText(row.flops))
    flops.title = row.flops === null ? "not counted for this operator" : `${Math.round(row.flops).toLocaleString("en")} FLOP, ${scaledText(row.flops / row.total, ["", "k", "M", "G", "T"], 1000)}FLOP/s`
    const memory = element("td", "column-bytes number", bytesText(row.bytes))
    memory.title = `${Math.round(row.bytes).toLocaleString("en")} B`
    const from = element("td", "column-place", place(row) ?? "")
    from.title = [row.module, row.stack, row.shapes].filter(Boolean).join("\n")
    line.append(flops, memory)
    if (columns().some(([id]) => id === "place")) line.append(from)
    if (!opened) return
    selfLine(body, row, depth + 1, scale)
    const below = grouped(row.members.flatMap(member => member.children), keyOf(), row.id, data.steps)
    for (const child of ordered(below)) rowLine(body, child, depth + 1, scale)
  }

  function selfLine(body, row, depth, scale) {
    const line = body.insertRow()
    line.className = "inner own"
    const name = element("td", "column-name", "in itself")
    name.style.paddingLeft = `${1.9 + depth * 1.1}rem`
    const cell = bars({ self: row.self, total: row.self }, scale)
    cell.title = "With the totals of the rows below: the total of the row above."
    line.append(name, cell)
    for (let i = 2; i < columns().length; i++) line.append(element("td"))
  }

  const stepS = () => roots().reduce((total, node) => total + (node.name === "step" ? node.total : 0), 0) / data.steps

  function draw() {
    root.classList.toggle("dark", isDark(root))
    for (const [id, made] of buttons) made.setAttribute("aria-checked", String(id === group))
    const all = topRows(), rows = ordered(all.filter(matches))
    const scale = Math.max(...all.map(row => row.total), 1e-12)
    const table = element("table", columns().some(([id]) => id === "place") ? "placed" : "")
    header(table)
    const body = table.createTBody()
    for (const row of rows.slice(0, MOST)) rowLine(body, row, 0, scale)
    const top = scroll.scrollTop
    scroll.replaceChildren(table)
    scroll.scrollTop = top
    if (wanted) { [...scroll.querySelectorAll(".opener")].find(b => b.dataset.row === wanted)?.focus(); wanted = null }
    footer(all, rows)
  }

  function footer(all, rows) {
    const operators = all.filter(row => row.operator || group === "tree").reduce((total, row) => total + row.self, 0)
    const whole = stepS(), hidden = rows.length > MOST ? ` The first ${MOST} of ${rows.length} rows are drawn.` : ""
    foot.textContent = group === "tree" ? `The step: ${secondsText(whole)} (mean of ${data.steps}). Every row is its own time plus the rows below it.${hidden}` :
      `Self times: ${secondsText(operators)} in operators + ${secondsText(whole - operators)} in Python and between operators = ${secondsText(whole)}, the step (mean of ${data.steps}).${hidden}`
  }

  function saveRows() {
    const lines = [["operator", "self_s", "total_s", "device_self_s", "calls", "flops", "bytes", "shapes", "module", "line", "stack"]]
    for (const row of ordered(topRows().filter(matches))) {
      lines.push([row.name, row.self, row.total, row.device, row.calls, row.flops, row.bytes, row.shapes, row.module, row.line, row.stack])
    }
    const cell = value => value === null || value === undefined ? "" : /[",\n]/.test(String(value)) ? `"${String(value).replaceAll('"', '""')}"` : String(value)
    saveFile(`operators-by-${group}.csv`, new Blob([lines.map(line => line.map(cell).join(",")).join("\n") + "\n"], { type: "text/csv" }))
  }

  return {
    end() {},
    show(next) {
      if (!data || data.group !== next.group) group = next.group
      data = next
      nodes = nodesOf(data)
      root.style.setProperty("--height", `${data.height}px`)
      draw()
    },
  }
}
