// See the NOTE in __init__.py for how text travels.

import { element, isDark } from "../../kit/base.js"

const KEYWORDS = "False None True and as assert async await break class continue def del elif else except finally for from global if import in is lambda match nonlocal not or pass raise return try while with yield".split(" ").join("|")
const long = quote => `${quote}(?:\\\\[\\s\\S]|(?!${quote})[\\s\\S])*(?:${quote}|$)`
const short = quote => `${quote}(?:\\\\.|[^${quote}\\\\\\n])*${quote}?`
const TOKEN = new RegExp([
  "(?<comment>#[^\\n]*)",
  `(?<string>(?:\\b[rRbBuUfF]{1,2})?(?:${[long('"""'), long("'''"), short('"'), short("'")].join("|")}))`,
  "(?<decorator>(?<=^|\\n)[ \\t]*@[\\w.]+)",
  "(?<number>\\b(?:0[xXbBoO][\\da-fA-F_]+|\\d[\\d_]*(?:\\.[\\d_]*)?(?:[eE][+-]?\\d+)?j?))",
  `(?<keyword>\\b(?:${KEYWORDS})\\b)`,
  "(?<call>\\b[A-Za-z_]\\w*(?=\\s*\\())",
  "(?<plain>\\w+|[\\s\\S])",
].join("|"), "g")

// The text as lines, each a list of [class, piece].
export function lines(text) {
  const rows = [[]]
  for (const { groups } of text.matchAll(TOKEN)) {
    const [kind, piece] = Object.entries(groups).find(([, v]) => v !== undefined)
    piece.split("\n").forEach((part, i) => {
      if (i) rows.push([])
      const row = rows.at(-1)
      if (kind === "plain" && row.length && row.at(-1)[0] === "plain") row.at(-1)[1] += part
      else if (part) row.push([kind, part])
    })
  }
  return rows
}

// `marks`: line numbers to a class; a line is marked while it reads as it did when it was run.
function paint(ink, text, wrong, marks) {
  const rows = text.split("\n")
  const mark = new Map(marks.filter(({ line, row }) => rows[line - 1] === row).map(({ line, rank }) => [line, rank ? "site" : "site first"]))
  ink.replaceChildren(...lines(text).map((row, i) => {
    const line = element("div", `line ${wrong && wrong.line === i + 1 ? "wrong" : ""} ${mark.get(i + 1) ?? ""}`)
    line.dataset.number = i + 1
    line.append(...row.map(([kind, piece]) => kind === "plain" ? piece : element("span", kind, piece)))
    return line
  }))
}

// Typing through execCommand keeps the browser's undo history whole.
const type = text => document.execCommand(text ? "insertText" : "delete", false, text)

function indent(area, outwards) {
  const { value, selectionStart: a, selectionEnd: b } = area
  if (a === b && !outwards) return type("    ")
  const from = value.lastIndexOf("\n", a - 1) + 1
  const block = value.slice(from, b).split("\n")
  const moved = block.map(row => outwards ? row.replace(/^( {1,4}|\t)/, "") : row && `    ${row}`).join("\n")
  area.setSelectionRange(from, b)
  type(moved)
  if (a !== b) area.setSelectionRange(from, from + moved.length)
}

function newLine(area) {
  const before = area.value.slice(0, area.selectionStart)
  const row = before.slice(before.lastIndexOf("\n") + 1)
  const margin = row.match(/^[ \t]*/)[0]
  const code = row.replace(/#.*/, "").trimEnd()
  if (code.endsWith(":")) return type(`\n${margin}    `)
  type(`\n${/^\s*(return|break|continue|pass|raise)\b/.test(code) ? margin.replace(/( {1,4}|\t)$/, "") : margin}`)
}

// Backspace in the margin goes back one step of indentation. False where it is an ordinary Backspace.
function outdent(area) {
  const { value, selectionStart: at, selectionEnd } = area
  const margin = value.slice(value.lastIndexOf("\n", at - 1) + 1, at)
  if (at !== selectionEnd || !/^ +$/.test(margin)) return false
  area.setSelectionRange(at - ((margin.length - 1) % 4 + 1), at)
  return type("")
}

export default function ({ data, parentElement, setStateValue }) {
  const find = selector => parentElement.querySelector(selector)
  const [editor, area, ink, run, hint] = [".editor", "textarea", ".ink", ".run", ".state"].map(find)
  const memory = (parentElement.labEditor ??= { revision: -1, sent: null, run: 0 })
  if (memory.revision !== data.revision) {
    memory.revision = data.revision
    area.value = data.text
    memory.sent = data.text
  }
  memory.wrong = data.errorLine ? { line: data.errorLine, row: data.text.split("\n")[data.errorLine - 1] } : null

  const point = () => [...ink.children].forEach((row, i) => row.classList.toggle("pointed", memory.pointed === i + 1))
  const refresh = () => {
    const rows = area.value.split("\n")
    const { wrong } = memory
    paint(ink, area.value, wrong && rows[wrong.line - 1] === wrong.row ? wrong : null, data.marks)
    point()
    hint.textContent = area.value === data.text || area.value === memory.sent ? "" : "edited"
  }
  const send = number => {
    if (number === memory.run && area.value === memory.sent) return
    memory.sent = area.value
    memory.run = number
    const serial = Date.now()
    document.dispatchEvent(new CustomEvent("lab-sent", { detail: serial }))
    setStateValue("sent", { text: area.value, run: number, serial, revision: memory.revision })
    refresh()
  }

  area.setAttribute("aria-label", `${data.label}. Escape, then Tab leaves the editor.`)
  area.setAttribute("aria-invalid", String(Boolean(memory.wrong)))
  run.querySelector("span").textContent = data.runName
  area.oninput = refresh
  area.onkeydown = event => {
    event.stopPropagation() // Streamlit's own keys would see a bare div, not a textarea
    const leaving = memory.leaving
    memory.leaving = event.key === "Escape" || (leaving && event.key === "Shift")
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) send(Date.now())
    else if (event.key === "Tab" && !leaving && !event.ctrlKey && !event.altKey) indent(area, event.shiftKey)
    else if (event.key === "Enter" && !event.shiftKey && !event.altKey && !event.isComposing) newLine(area)
    else if (event.key !== "Backspace" || event.ctrlKey || event.altKey || event.metaKey || !outdent(area)) return
    event.preventDefault()
  }
  area.onkeyup = area.onkeypress = event => event.stopPropagation()
  run.onclick = () => send(Date.now())
  area.onblur = run.onblur = event => {
    memory.leaving = false
    if (!editor.contains(event.relatedTarget)) send(memory.run)
  }
  editor.classList.toggle("dark", isDark(find(".paper")))
  refresh()
  memory.leave?.()
  const hear = ({ detail }) => { // a step tells how its line reads: the text may have been edited since it ran
    const reads = detail.row === undefined || area.value.split("\n")[detail.line - 1] === detail.row
    memory.pointed = reads ? detail.line : null
    point()
  }
  const told = ["lab-line", "lab-step"]
  for (const name of told) document.addEventListener(name, hear)
  memory.leave = () => { for (const name of told) document.removeEventListener(name, hear) }
  return memory.leave
}
