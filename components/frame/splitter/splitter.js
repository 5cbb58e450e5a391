// The width is a CSS variable of the document; the page's style says what it means.

const NAME = "--lab-aside", STORED = "lab-aside", LEAST = 240, STEP = 24

function stored() {
  try {
    return Number(localStorage.getItem(STORED)) || null
  } catch { return null } // storage is switched off: the width lasts as long as the page
}

function keep(width) {
  try {
    if (width === null) localStorage.removeItem(STORED)
    else localStorage.setItem(STORED, width)
  } catch { /* as above */ }
}

export default function ({ parentElement }) {
  const line = parentElement.querySelector(".splitter")
  const column = () => line.getRootNode().host?.closest("[data-testid=stColumn]") ?? line.closest("[data-testid=stColumn]")
  const style = document.documentElement.style
  const most = () => Math.max(LEAST, (column()?.parentElement.clientWidth ?? 0) - 420)
  const set = width => {
    const found = width === null ? null : Math.round(Math.min(Math.max(width, LEAST), most()))
    if (found === null) style.removeProperty(NAME)
    else style.setProperty(NAME, `${found}px`)
    keep(found)
  }
  if (stored()) style.setProperty(NAME, `${stored()}px`)
  line.setAttribute("aria-label", "Width of the controls")
  line.title = "Drag to share out the width; double click for the usual one"
  line.onpointerdown = event => {
    line.setPointerCapture(event.pointerId)
    line.classList.add("dragged")
    event.preventDefault()
  }
  line.onpointermove = event => {
    if (line.hasPointerCapture(event.pointerId)) set(event.clientX - column().getBoundingClientRect().left)
  }
  line.onpointerup = line.onpointercancel = () => line.classList.remove("dragged")
  line.ondblclick = () => set(null)
  line.onkeydown = event => {
    const way = { ArrowLeft: -STEP, ArrowRight: STEP }[event.key]
    if (!way) return
    set(column().getBoundingClientRect().width + way)
    event.preventDefault()
    event.stopPropagation()
  }
}
