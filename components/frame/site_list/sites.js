// Sites as buttons: hovering or focusing lights a line, a click holds it until the next click.

import { button, element } from "../../kit/base.js"

const tell = line => document.dispatchEvent(new CustomEvent("lab-line", { detail: { line } }))

export default function ({ data, parentElement }) {
  const list = parentElement.querySelector(".sites")
  let held = null
  list.replaceChildren(...data.sites.map(({ line, text }) => {
    const item = element("li")
    const one = button("site", text, undefined, () => {
      held = held === line ? null : line
      for (const other of list.querySelectorAll(".site")) other.setAttribute("aria-pressed", other === one && held === line)
      tell(held ?? line)
    })
    one.setAttribute("aria-pressed", "false")
    one.onpointerenter = one.onfocus = () => tell(line)
    one.onpointerleave = one.onblur = () => tell(held)
    item.append(one)
    return item
  }))
  return () => { if (held !== null) tell(null) }
}
