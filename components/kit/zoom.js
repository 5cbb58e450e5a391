// Zoom and pan of pictures and timelines: the arithmetic, and the wheel, pointers and keys that call it.

import { part } from "./base.js"

const KEY_FACTOR = 1.6, KEY_SHARE = 0.2

/** The offset at which what is under `pixel` stays there while the scale changes. */
export const keptAt = (pixel, offset, before, after) => pixel - ((pixel - offset) * after) / before

/** How much nearer one turn of the wheel brings; a notch is about 1.3, in pixels or in lines. */
export function wheelFactor({ deltaY, deltaMode }) {
  const pixels = deltaY * (deltaMode === 1 ? 16 : 1)
  return Math.exp(-Math.max(-120, Math.min(120, pixels)) / 400)
}

/** What part of a line of length `whole` is in view. Never less than `least(whole)`, never beyond the ends. */
export function createSpan(least) {
  const span = { from: 0, to: 1, whole: 1 }
  span.reset = whole => Object.assign(span, { whole, from: 0, to: whole })
  span.show = (from, to) => {
    const width = Math.min(Math.max(to - from, least(span.whole)), span.whole)
    span.from = Math.min(Math.max(0, from), span.whole - width)
    span.to = span.from + width
  }
  /** A factor above 1 comes nearer; what is at `at` stays where it is. */
  span.zoom = (factor, at = (span.from + span.to) / 2) => {
    const width = Math.min(Math.max((span.to - span.from) / factor, least(span.whole)), span.whole)
    const from = at - ((at - span.from) * width) / (span.to - span.from)
    span.show(from, from + width)
  }
  span.pan = share => {
    const move = (span.to - span.from) * share
    span.show(span.from + move, span.to + move)
  }
  return span
}

/** Wheel on a stage: `zoom(factor, x, y)` at the pointer; sideways `pan(pixels)` where the stage takes it. */
export function followWheel(stage, { zoom, pan, listens = () => true }) {
  stage.addEventListener("wheel", event => {
    if (!listens(event)) return
    event.preventDefault()
    const box = stage.getBoundingClientRect(), sideways = event.deltaX || (event.shiftKey ? event.deltaY : 0)
    if (pan && Math.abs(sideways) >= Math.abs(event.deltaY)) pan(sideways)
    else zoom(wheelFactor(event), event.clientX - box.left, event.clientY - box.top)
  }, { passive: false })
}

/** One pointer drags, two pinch. Answers whether the last press has moved. */
export function followPointers(stage, { zoom, pan }) {
  const pointers = new Map()
  let dragged = false
  stage.addEventListener("pointerdown", event => {
    if (event.target.closest(".overlay")) return
    pointers.set(event.pointerId, [event.clientX, event.clientY])
    if (pointers.size === 1) dragged = false
  })
  stage.addEventListener("pointermove", event => {
    const before = pointers.get(event.pointerId)
    if (!before) return
    const now = [event.clientX, event.clientY]
    const [dx, dy] = [now[0] - before[0], now[1] - before[1]]
    if (!dragged && Math.hypot(dx, dy) < 4) return
    if (!dragged) stage.setPointerCapture(event.pointerId)
    dragged = true
    const other = [...pointers].find(([id]) => id !== event.pointerId)?.[1]
    if (other) {
      const box = stage.getBoundingClientRect()
      const distance = p => Math.max(1, Math.hypot(p[0] - other[0], p[1] - other[1]))
      zoom(distance(now) / distance(before), other[0] - box.left, other[1] - box.top)
    } else pan(dx, dy)
    pointers.set(event.pointerId, now)
  })
  for (const end of ["pointerup", "pointercancel", "lostpointercapture"])
    stage.addEventListener(end, event => pointers.delete(event.pointerId))
  return () => dragged
}

/** A timeline: the wheel zooms at the pointer while the stage has the focus or Ctrl is held, sideways it moves; so do W S and A D.
 *  Shift and drag moves. A drag over the ruler zooms into what it covers; any other drag and a click belong to the figure.
 *  @param {() => { left: number, width: number, ruler: number }} place pixels of the stage: the line, and how deep the ruler is
 *  @param {{ changed(): void, fit(): void, press?(event: PointerEvent): void, drag(from: number, to: number, event: PointerEvent): void,
 *    click(event: PointerEvent): void, hover(event: PointerEvent): void }} figure */
export function followTimeline(stage, span, place, figure) {
  const change = act => { act(); figure.changed() }
  const zoom = (factor, at) => change(() => span.zoom(factor, at))
  const pan = share => change(() => span.pan(share))
  const pointAt = x => { const { left, width } = place(); return span.from + ((x - left) / width) * (span.to - span.from) }
  const inside = x => Math.min(span.whole, Math.max(0, pointAt(x)))
  const xOf = event => event.clientX - stage.getBoundingClientRect().left
  const mark = part(stage, "div", "zoom-mark")
  let drag = null
  mark.hidden = true

  followWheel(stage, {
    zoom: (factor, x) => zoom(factor, pointAt(x)),
    pan: pixels => pan(pixels / place().width),
    listens: event => event.ctrlKey || stage.getRootNode().activeElement === stage,
  })
  stage.addEventListener("pointerdown", event => {
    if (event.button) return
    const y = event.clientY - stage.getBoundingClientRect().top + stage.scrollTop
    const kind = event.shiftKey ? "move" : y < place().ruler ? "zoom" : "own"
    drag = { kind, x: xOf(event), from: span.from, to: span.to, moved: false }
    stage.setPointerCapture(event.pointerId)
    if (kind === "own") figure.press?.(event)
  })
  stage.addEventListener("pointermove", event => {
    if (!drag) return figure.hover(event)
    const x = xOf(event)
    drag.moved ||= Math.abs(x - drag.x) > 3
    if (!drag.moved) return
    const [low, high] = [Math.min(x, drag.x), Math.max(x, drag.x)]
    if (drag.kind === "own") figure.drag(inside(low), inside(high), event)
    else if (drag.kind === "move") {
      const move = ((drag.x - x) / place().width) * (drag.to - drag.from)
      change(() => span.show(drag.from + move, drag.to + move))
    } else {
      mark.hidden = false
      Object.assign(mark.style, { left: `${low}px`, width: `${high - low}px` })
    }
  })
  stage.addEventListener("pointerup", event => {
    if (drag && !drag.moved) figure.click(event)
    else if (drag?.kind === "zoom") {
      const ends = [drag.x, xOf(event)].sort((a, b) => a - b).map(inside)
      change(() => span.show(...ends))
    }
    drag = null
    mark.hidden = true
  })
  stage.addEventListener("pointercancel", () => { drag = null; mark.hidden = true })
  const keys = { w: () => zoom(KEY_FACTOR), s: () => zoom(1 / KEY_FACTOR), a: () => pan(-KEY_SHARE), d: () => pan(KEY_SHARE), f: () => figure.fit() }
  return {
    pointAt,
    zoom,
    pan,
    /** Whether the event was a key of the zoom; it has been done then. */
    key(event) {
      const act = keys[event.key.toLowerCase()]
      if (act) act()
      return Boolean(act)
    },
  }
}
