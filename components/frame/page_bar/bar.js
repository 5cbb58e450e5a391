// The page-wide buttons and their keys.

import { element } from "../../kit/base.js"
import { sawLesson } from "../../kit/seen.js"

const EDITABLE = "input, textarea, select, [contenteditable=true]"

// The address follows the controls a moment later: wait until Python has heard the newest program and no script runs.
async function settledAddress(memory) {
  const pause = ms => new Promise(done => setTimeout(done, ms))
  const running = () => document.querySelector("[data-testid=stApp]")?.dataset.testScriptState === "running"
  await pause(150)
  for (let i = 0; i < 100 && (memory.sent > memory.heard || (i < 20 && running())); i++) await pause(100)
  const where = {}, address = new URL(window.location.href)
  document.dispatchEvent(new CustomEvent("lab-where", { detail: where }))
  if (where.at) address.searchParams.set(memory.at, where.at)
  else address.searchParams.delete(memory.at)
  return address.href
}

// navigator.clipboard exists only on https and localhost; elsewhere the selected field is copied the old way.
async function copy(text, field) {
  if (navigator.clipboard) {
    try {
      await navigator.clipboard.writeText(text)
      return true
    } catch (refused) {
      console.info("clipboard refused", refused.name)
    }
  }
  field.hidden = false
  field.value = text
  field.select()
  return document.execCommand("copy")
}

export default function ({ data, parentElement, setStateValue }) {
  const find = selector => parentElement.querySelector(selector)
  const [present, link, help, field, said, dialog, list] =
    [".present", ".copy", ".help", ".link", ".said", "dialog", "dl"].map(find)
  const memory = (parentElement.labBar ??= { sent: 0 })
  Object.assign(memory, { leftOut: data.leftOut, heard: data.heard, at: data.at })
  sawLesson(data.lesson)
  const toggle = () => setStateValue("present", !data.presenting)

  present.querySelector("span").textContent = data.presenting ? "Leave" : "Present"
  present.setAttribute("aria-pressed", String(data.presenting))
  present.title = "Presenter mode (p)"
  present.onclick = toggle
  link.onclick = async () => {
    const address = await settledAddress(memory)
    const copied = await copy(address, field)
    said.textContent = memory.leftOut || (copied ? "Link copied." : "Copy the selected link.")
    if (copied && !field.hidden) field.hidden = true
  }
  list.replaceChildren(...data.keys.flatMap(([key, meaning]) => {
    const term = element("dt")
    term.append(element("kbd", "", key))
    return [term, element("dd", "", meaning)]
  }))
  help.onclick = () => dialog.showModal()
  find(".close").onclick = () => dialog.close()

  memory.leave?.()
  const onKey = event => {
    const target = event.composedPath()[0]
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || target.matches?.(EDITABLE)) return
    if (event.key === "p") toggle()
    else if (event.key !== "?") return
    else if (dialog.open) dialog.close()
    else dialog.showModal()
    event.preventDefault()
  }
  const onSent = event => { memory.sent = event.detail }
  document.addEventListener("keydown", onKey)
  document.addEventListener("lab-sent", onSent)
  memory.leave = () => {
    document.removeEventListener("keydown", onKey)
    document.removeEventListener("lab-sent", onSent)
  }
  return memory.leave
}
