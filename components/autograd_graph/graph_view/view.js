// Zoom and pan of the stage: wheel, drag, pinch, buttons, overview.

import { svgElement } from "../../kit/base.js"
import { followPointers, followWheel, keptAt } from "../../kit/zoom.js"

export const FIT_LIMIT = 1.35, READABLE = 0.45
const PROJECTED = 1.45 // titles of 20 px, read from the last row
const FAR = 0.5, MARGIN = 22

export function createView(stage, world, overview) {
  const view = { k: 1, x: 0, y: 0, fitted: true, width: 0, height: 0, largest: FIT_LIMIT, projected: false }
  let cleared = null // where a fitted picture was moved to for a panel
  const bounds = () => [stage.clientWidth, stage.clientHeight]

  view.paint = (smooth = false) => {
    world.classList.toggle("smooth", smooth)
    world.style.transform = `translate(${view.x}px, ${view.y}px) scale(${view.k})`
    stage.classList.toggle("far", view.k < FAR)
    overview.paint(view, bounds())
  }
  view.fitScale = () => {
    const [w, h] = bounds()
    return Math.min((w - 2 * MARGIN) / view.width, (h - 2 * MARGIN) / view.height, view.largest)
  }
  view.fit = (smooth = true) => {
    const [w, h] = bounds()
    view.k = Math.max(0.02, view.fitScale())
    view.x = (w - view.width * view.k) / 2
    view.y = (h - view.height * view.k) / 2
    view.fitted = true
    view.paint(smooth)
  }
  // First look at a picture: all of it where that can be read, else its end, where backward starts.
  view.open = focus => {
    if (view.fitScale() >= (view.projected ? PROJECTED : READABLE) || !focus) return view.fit(false)
    view.k = view.projected ? PROJECTED : Math.min(0.75, view.largest)
    for (const [axis, whole, size, end] of [["x", view.width, bounds()[0], focus.x + focus.w / 2], ["y", view.height, bounds()[1], focus.y + focus.h / 2]])
      view[axis] = whole * view.k < size - 2 * MARGIN ? (size - whole * view.k) / 2 : size - MARGIN - end * view.k
    view.fitted = false
    view.paint()
  }
  // From far away to the top of a frame, near enough to read.
  view.look = ([x, y, width]) => {
    view.k = 0.7
    view.pin({ x: x + width / 2, y }, { x: bounds()[0] / 2, y: MARGIN })
    view.paint(true)
  }
  view.zoom = (factor, px = bounds()[0] / 2, py = bounds()[1] / 2, smooth = false) => {
    const k = Math.max(0.02, Math.min(3, view.k * factor))
    view.x = keptAt(px, view.x, view.k, k)
    view.y = keptAt(py, view.y, view.k, k)
    view.k = k
    view.fitted = false
    view.paint(smooth)
  }
  // Move a card out from under a panel: to its left, or above a panel that is as wide as the stage.
  view.clear = (card, panel) => {
    const at = view.seen(card), [half, tall] = [(card.w / 2) * view.k, (card.h / 2) * view.k]
    const wide = panel.offsetWidth > 0.8 * bounds()[0]
    const under = at.x + half > panel.offsetLeft && at.y - tall < panel.offsetTop + panel.offsetHeight && at.y + tall > panel.offsetTop
    if (!under) return
    if (wide) view.y -= Math.min(at.y + tall + 12 - panel.offsetTop, at.y - tall - 8)
    else view.x -= Math.min(at.x + half + 12 - panel.offsetLeft, at.x - half - 8)
    cleared = view.fitted && [view.x, view.y, view.k].join()
    view.fitted = false
    view.paint(true)
  }
  // The panel is gone: back to the whole picture, unless the visitor has moved meanwhile.
  view.unclear = () => {
    if (cleared === [view.x, view.y, view.k].join()) view.fit()
    cleared = null
  }
  view.zoomStep = direction => view.zoom(1.3 ** direction, undefined, undefined, true)
  view.centre = (x, y) => {
    view.pin({ x, y }, { x: bounds()[0] / 2, y: bounds()[1] / 2 })
    view.paint()
  }
  // Where a point of the picture is on the stage, and the pan that puts it there.
  view.seen = ({ x, y }) => ({ x: view.x + x * view.k, y: view.y + y * view.k })
  view.pin = (point, seen) => {
    view.x = seen.x - point.x * view.k
    view.y = seen.y - point.y * view.k
    view.fitted = false
  }
  // Move as little as needed to see these cards; the first one wins where not all fit.
  view.reveal = cards => {
    if (!cards.length) return
    const [w, h] = bounds()
    let moved = false
    const at = view.seen(cards[0])
    if (!view.fitted && (view.k < READABLE || at.x < 0 || at.y < 0 || at.x > w || at.y > h)) {
      view.k = Math.max(view.k, 0.75)
      view.pin(cards[0], { x: w / 2, y: h / 2 })
      moved = true
    }
    for (const card of [...cards].reverse()) {
      const half = [(card.w / 2) * view.k + MARGIN, (card.h / 2) * view.k + MARGIN]
      for (const [axis, middle, size, r] of [["x", card.x, w, half[0]], ["y", card.y, h, half[1]]]) {
        const seen = view[axis] + middle * view.k
        const to = Math.max(Math.min(r, size / 2), Math.min(Math.max(size - r, size / 2), seen))
        if (Math.abs(to - seen) > 0.5) { view[axis] += to - seen; moved = true }
      }
    }
    if (moved) view.paint(true)
  }

  followWheel(stage, { zoom: view.zoom })
  view.dragged = followPointers(stage, {
    zoom: view.zoom,
    pan: (dx, dy) => {
      view.x += dx
      view.y += dy
      view.fitted = false
      view.paint()
    },
  })
  const observer = new ResizeObserver(() => (view.fitted && view.width ? view.fit(false) : view.width && view.paint()))
  observer.observe(stage)
  view.end = () => observer.disconnect()
  return view
}

// The whole picture in a corner, shown while it is clearly larger than the stage.
export function createOverview(host, onPick) {
  const svg = svgElement("svg", { "aria-hidden": "true" })
  const boxes = svgElement("path", { class: "overview-boxes" })
  const window_ = svgElement("rect", { class: "overview-window" })
  svg.append(boxes, window_)
  host.append(svg)
  let size = [1, 1]
  const pick = event => {
    if (!(event.buttons & 1)) return
    const rect = svg.getBoundingClientRect()
    onPick(((event.clientX - rect.left) / rect.width) * size[0], ((event.clientY - rect.top) / rect.height) * size[1])
  }
  svg.addEventListener("pointerdown", pick)
  svg.addEventListener("pointermove", pick)
  return {
    show(cards, newSize) {
      size = newSize
      const stage = host.parentElement
      const k = Math.min(Math.min(140, 0.2 * stage.clientWidth) / size[0], Math.min(150, 0.28 * stage.clientHeight) / size[1])
      svg.setAttribute("viewBox", `0 0 ${size[0]} ${size[1]}`)
      svg.setAttribute("width", Math.max(26, size[0] * k))
      svg.setAttribute("height", Math.max(26, size[1] * k))
      svg.setAttribute("preserveAspectRatio", "none")
      boxes.setAttribute("d", cards.map(c => `M${c.x - c.w / 2} ${c.y - c.h / 2}h${c.w}v${c.h}h${-c.w}z`).join(""))
    },
    paint(view, [w, h]) {
      host.hidden = size[0] * view.k < 1.2 * w && size[1] * view.k < 1.2 * h
      const rect = { x: -view.x / view.k, y: -view.y / view.k, width: w / view.k, height: h / view.k }
      for (const [name, value] of Object.entries(rect)) window_.setAttribute(name, value)
    },
  }
}
