// Paste a program, a path, and all lessons with a search that knows words, interview questions and error messages.

import { button, element, part } from "../../kit/base.js"
import { seenLessons } from "../../kit/seen.js"

const SHOWN = 12, LONG_QUERY = 7
const COMMON = new Set("a an and are as at be but by for from has have in is it its no not of on one or that the this to was what which will with you your".split(" "))

const wordsOf = text => text.toLowerCase().replaceAll("in-place", "inplace").match(/[\p{L}\p{N}_.]+/gu) ?? []

// Every word of a short query must be found; an error message finds the lessons that share its rarer words.
export function search(lessons, query) {
  const rows = lessons.filter(lesson => lesson.row.toLowerCase() === query.trim().toLowerCase())
  if (rows.length) return rows
  const words = [...new Set(wordsOf(query))].filter(word => !COMMON.has(word))
  if (words.length >= LONG_QUERY) return byRareWords(lessons, words)
  const score = lesson => {
    const head = `${lesson.title} ${lesson.question}`.toLowerCase(), body = `${lesson.page} ${lesson.words}`.toLowerCase()
    return words.reduce((sum, word) => sum + (head.includes(word) ? 3 : body.includes(word) ? 1 : -1000), 0)
  }
  return ranked(lessons, score, 0)
}

function byRareWords(lessons, words) {
  const texts = new Map(lessons.map(lesson => [lesson, new Set(wordsOf(`${lesson.title} ${lesson.question} ${lesson.words}`))]))
  const rarity = new Map(words.map(word => [word, Math.log(lessons.length / (1 + [...texts.values()].filter(text => text.has(word)).length))]))
  return ranked(lessons, lesson => words.reduce((sum, word) => sum + (texts.get(lesson).has(word) ? rarity.get(word) : 0), 0), 4)
}

const ranked = (lessons, score, above) => lessons.map(lesson => [score(lesson), lesson])
  .filter(([points]) => points > above || above === 0 && points >= 0).sort(([a], [b]) => b - a).map(([, lesson]) => lesson)

// zlib and base64 with the alphabet of addresses, as share_link.py reads it.
export async function pack(text) {
  const stream = new Blob([text]).stream().pipeThrough(new CompressionStream("deflate"))
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer())
  return btoa(Array.from(bytes, byte => String.fromCharCode(byte)).join("")).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "")
}

function pasteBox(host, data) {
  part(host, "h2", "", "Paste your program")
  part(host, "p", "", "It opens on the page that you choose, and waits there for Run.")
  const area = part(host, "textarea"), row = part(host, "div", "opens")
  area.spellcheck = false
  area.setAttribute("aria-label", "Your program")
  area.placeholder = "x = torch.tensor([1.0, 2.0], requires_grad=True)\nloss = (x ** 2).sum()\nloss.backward()"
  const buttons = data.programs.map((page, i) => button(i ? "" : "first", page.title, `Open the program on the page ${page.title}`, async () => {
    const packed = await pack(area.value)
    if (packed.length > data.longest) {
      said.textContent = `The program is too long for a link: ${packed.length.toLocaleString("en")} characters compressed, the limit is ${data.longest.toLocaleString("en")}. Open the page and paste it into the editor.`
      return
    }
    window.location.href = `${page.stem}?${new URLSearchParams({ ...page.query, [page.code]: packed })}`
  }))
  row.append(...buttons)
  const said = part(row, "span", "said")
  said.setAttribute("role", "status")
  const enable = () => { for (const one of buttons) one.disabled = !area.value.trim() }
  area.oninput = enable
  enable()
}

function mark(link, seen) {
  if (seen.has(link.getAttribute("href"))) part(link, "span", "seen", "✓ seen")
}

function pathOf(host, data, seen) {
  part(host, "h2", "", "A first hour")
  part(host, "p", "", "Ten lessons in this order. Say what you expect, then look.")
  const list = part(host, "ol", "path")
  data.path.forEach((href, i) => {
    const lesson = data.lessons.find(one => one.href === href), link = part(part(list, "li"), "a")
    link.href = href
    link.append(element("span", "number", `${i + 1}.`), element("span", "", lesson.title))
    const of = part(link, "span", "of", lesson.page)
    if (seen.has(href)) of.append(element("span", "seen", "  ✓ seen"))
  })
}

function searchBox(host, data, seen) {
  part(host, "h2", "", "All lessons")
  const field = part(host, "input"), found = part(host, "div", "found"), list = part(host, "ul", "lessons")
  field.type = "search"
  field.placeholder = "What you want to know, a question such as A3, or an error message"
  field.setAttribute("aria-label", "Search the lessons")
  found.setAttribute("role", "status")
  let all = false
  const draw = () => {
    const hits = search(data.lessons, field.value), shown = all ? hits : hits.slice(0, SHOWN)
    const count = hits.filter(lesson => seen.has(lesson.href)).length
    found.textContent = hits.length ? `${hits.length} lesson${hits.length === 1 ? "" : "s"}${count ? `, ${count} seen in this browser` : ""}` : "No lesson has these words."
    list.replaceChildren(...shown.map(lesson => {
      const item = element("li"), link = part(item, "a")
      link.href = lesson.href
      link.append(element("b", "", lesson.title), element("span", "question", lesson.question), element("span", "of", `${lesson.page} · question ${lesson.row}`))
      mark(link, seen)
      return item
    }))
    if (shown.length < hits.length) part(part(list, "li"), "button", "", `Show all ${hits.length}`).onclick = () => { all = true; draw() }
  }
  field.oninput = () => { all = false; draw() }
  draw()
}

export default function ({ data, parentElement }) {
  const host = parentElement.querySelector(".start")
  if (host.childElementCount) return
  const seen = seenLessons()
  const columns = part(host, "div", "columns")
  pasteBox(part(columns, "section"), data)
  pathOf(part(columns, "section"), data, seen)
  searchBox(part(host, "section"), data, seen)
}
