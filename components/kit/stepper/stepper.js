// Transport bar for figures that are stepped or played. See __init__.py for the interface.

import { element, icon, iconButton } from "../base.js"

// The step that the link asks for: the parameter "<page>.at".
const linkedStep = () => Number([...new URLSearchParams(location.search)].find(([name]) => name.endsWith(".at"))?.[1]) || 0

export function createStepper(host, onMove, word = "step") {
  const FASTEST_MS = 120, SLOWEST_MS = 1000, WHOLE_PASS_MS = 60000
  let count = 0, position = 0, idle = "", timer = null, linked = linkedStep()
  host.classList.add("stepper")
  host.setAttribute("role", "group")
  host.setAttribute("aria-label", "Steps")

  const go = (to, playing = false) => {
    if (!playing) stop()
    const bounded = Math.max(0, Math.min(count, to))
    if (bounded !== position) {
      position = bounded
      onMove(position)
    }
    paint()
  }
  const stop = () => {
    clearInterval(timer)
    timer = null
    paint()
  }
  const play = () => {
    if (timer) return stop()
    if (!count) return
    if (position === count) go(0)
    go(position + 1)
    const pause_ms = Math.max(FASTEST_MS, Math.min(SLOWEST_MS, WHOLE_PASS_MS / count))
    const stride = Math.ceil((count * FASTEST_MS) / WHOLE_PASS_MS) // thousands of steps are played in a minute too
    timer = setInterval(() => (position < count ? go(position + stride, true) : stop()), pause_ms)
    paint()
  }

  const buttons = {
    first: iconButton("first", "Before the first step (Home)", () => go(0)),
    previous: iconButton("previous", "Previous step (←)", () => go(position - 1)),
    play: iconButton("play", "Play (Space)", play),
    next: iconButton("next", "Next step (→)", () => go(position + 1)),
    last: iconButton("last", "Last step (End)", () => go(count)),
  }
  const slider = element("input", "slider")
  slider.type = "range"
  slider.min = 0
  slider.setAttribute("aria-label", "Step")
  slider.addEventListener("input", () => go(Number(slider.value)))
  const text = element("span", "position")
  host.append(...Object.values(buttons), slider, text)

  const paint = () => {
    slider.max = count
    slider.value = position
    slider.disabled = !count
    text.textContent = position ? `${word} ${position.toLocaleString("en")} of ${count.toLocaleString("en")}` : idle
    slider.setAttribute("aria-valuetext", text.textContent)
    slider.style.setProperty("--filled", count ? `${(100 * position) / count}%` : "0%")
    buttons.first.disabled = buttons.previous.disabled = !position
    buttons.next.disabled = buttons.last.disabled = position >= count
    buttons.play.disabled = !count
    const face = timer ? "pause" : "play"
    if (!buttons.play.querySelector(`.icon-${face}`)) buttons.play.replaceChildren(icon(face))
    buttons.play.title = timer ? "Pause (Space)" : "Play (Space)"
    buttons.play.setAttribute("aria-label", buttons.play.title)
  }

  // Whoever copies a link asks where the page stands.
  const answer = ({ detail }) => {
    if (!host.isConnected) document.removeEventListener("lab-where", answer)
    else if (position && slider.offsetParent) detail.at = position
  }
  document.addEventListener("lab-where", answer)

  const moves = {
    ArrowRight: () => go(position + 1),
    ArrowLeft: () => go(position - 1),
    Home: () => go(0),
    End: () => go(count),
    " ": play,
  }
  return {
    get position() { return position },
    get count() { return count },
    go,
    stop,
    setCount(newCount, newPosition, idleText) {
      if (newCount !== count) stop()
      count = newCount
      position = Math.min(newPosition, newCount)
      idle = idleText
      paint()
      if (!linked || linked > count) return
      const to = linked
      linked = 0
      queueMicrotask(() => go(to)) // after the figure has drawn what it was given
    },
    key(event) {
      const move = count && moves[event.key]
      if (move) move()
      return Boolean(move)
    },
  }
}
