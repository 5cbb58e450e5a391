// What every figure is made of: elements, icons, the theme, numbers with units, its place on the page.

const ICON_PATHS = {
  first: "M4 3.5v9M12.5 3.5 6.5 8l6 4.5z",
  previous: "M11 3.5 5 8l6 4.5z",
  play: "M5 3.2 12.5 8 5 12.8z",
  pause: "M5.2 3.5v9M10.8 3.5v9",
  next: "m5 3.5 6 4.5-6 4.5z",
  last: "M12 3.5v9M3.5 3.5l6 4.5-6 4.5z",
  plus: "M8 3.5v9M3.5 8h9",
  minus: "M3.5 8h9",
  fit: "M2.5 6V2.5H6M10 2.5h3.5V6M13.5 10v3.5H10M6 13.5H2.5V10",
  search: "M7 2.8a4.2 4.2 0 1 1 0 8.4 4.2 4.2 0 0 1 0-8.4zM10.2 10.2 13.5 13.5",
  listing: "M2.5 4h3M2.5 8h3M2.5 12h3M8 4h5.5M8 8h5.5M8 12h3.5",
  close: "m4 4 8 8M12 4l-8 8",
  up: "M8 13V3M4.5 6.5 8 3l3.5 3.5",
  down: "M8 3v10M4.5 9.5 8 13l3.5-3.5",
  right: "M3 8h10M9.5 4.5 13 8l-3.5 3.5",
  left: "M13 8H3M6.5 4.5 3 8l3.5 3.5",
}

// --- elements -----------------------------------------------------------------------------------------------------

/** @param {string} tag @param {string} [className] @param {string | number} [text] set as text, never as markup */
export function element(tag, className, text) {
  const made = document.createElement(tag)
  if (className) made.className = className
  if (text !== undefined) made.textContent = String(text)
  return made
}

/** An element at the end of its parent. */
export function part(parent, tag, className, text) {
  return parent.appendChild(element(tag, className, text))
}

export function svgElement(tag, attributes = {}, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag)
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value)
  if (text !== undefined) made.textContent = text
  return made
}

/** @param {keyof typeof ICON_PATHS} name */
export function icon(name) {
  const svg = svgElement("svg", { viewBox: "0 0 16 16", class: `icon icon-${name}`, "aria-hidden": "true" })
  svg.append(svgElement("path", { d: ICON_PATHS[name] }))
  return svg
}

/** @param {string} label what the button says to the pointer and to a screen reader */
export function button(className, text, label, onClick) {
  const made = element("button", className, text)
  made.type = "button"
  if (label) {
    made.title = label
    made.setAttribute("aria-label", label)
  }
  made.addEventListener("click", onClick)
  return made
}

export function iconButton(name, label, onClick) {
  const made = button("tool", undefined, label, onClick)
  made.append(icon(name))
  return made
}

// --- theme and place ----------------------------------------------------------------------------------------------

/** Red, green and blue of a CSS colour "rgb(…)"; white where there is none. */
export const channels = colour => (colour.match(/[\d.]+/g) ?? [255, 255, 255]).slice(0, 3).map(Number)

/** @param {number[]} rgb 0 to 255 */
export const brightness = ([red, green, blue]) => 0.299 * red + 0.587 * green + 0.114 * blue

/** The theme is read from the page: a dark background gets the dark hues. */
export const isDark = root => brightness(channels(getComputedStyle(root).backgroundColor)) < 128

/** @param {{ height: number, presenter?: boolean }} data height in pixels */
export function paintTheme(root, data) {
  root.classList.toggle("presenter", Boolean(data.presenter))
  root.style.setProperty("--height", `${data.height}px`)
  root.classList.toggle("dark", isDark(root))
}

/** What a components-v2 script exports: one figure for each place, built once, shown new data, ended with its place.
 *  @param {(root: HTMLElement, send: (name: string, value: unknown) => void) => { show(data: object): void, end(): void }} build */
export function figureAt(selector, build) {
  const places = new WeakMap()
  return ({ data, parentElement, setStateValue }) => {
    let place = places.get(parentElement)
    if (!place) {
      place = { send: setStateValue }
      place.figure = build(parentElement.querySelector(selector), (name, value) => place.send(name, value))
      places.set(parentElement, place)
    }
    place.send = setStateValue
    place.figure.show(data)
    return () => {
      place.figure.end()
      places.delete(parentElement)
    }
  }
}

// --- numbers ------------------------------------------------------------------------------------------------------

const BYTE_UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]

/** How often `base` goes into a number, at most `most` times. */
function powerOf(value, base, most) {
  let size = Math.abs(value), power = 0
  while (size >= base && power < most) { size /= base; power += 1 }
  return power
}

/** Three significant digits, whole numbers from 100 on. */
export function digits(value) {
  const size = Math.abs(value)
  return value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2)
}

/** "1.50 KiB": two decimals from 1 KiB on, as in Python's bytes_text. */
export function bytesText(count) {
  const power = powerOf(count, 1024, BYTE_UNITS.length - 1)
  return `${power ? (count / 1024 ** power).toFixed(2) : count.toLocaleString("en")} ${BYTE_UNITS[power]}`
}

/** "1.50 KiB (1,536 B)". */
export const exactText = count => Math.abs(count) < 1024 ? bytesText(count) : `${bytesText(count)} (${count.toLocaleString("en")} B)`

/** A signed quantity in three digits: base 1024 for bytes, 1000 for FLOP; counts below the first step may be whole. */
export function scaledText(value, units, base) {
  const power = powerOf(value, base, units.length - 1), size = Math.abs(value) / base ** power
  const text = power ? digits(size) : size >= 100 || Number.isInteger(size) ? size.toFixed(0) : digits(size)
  return `${value < 0 ? "−" : ""}${text} ${units[power]}`
}

/** A change in bytes in few digits: "−1.5 MiB". */
export function signedBytes(bytes) {
  const power = powerOf(bytes, 1024, 3), size = Math.abs(bytes) / 1024 ** power
  return `${bytes < 0 ? "−" : ""}${power ? size.toFixed(size >= 100 ? 0 : 1) : size} ${BYTE_UNITS[power]}`
}

/** Seconds in the unit of `step`, the size that is compared: a tick in the unit of its neighbours. */
export function timeText(seconds, step = seconds) {
  const [size, unit] = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"]].find(([limit]) => Math.abs(step) >= limit * 0.999) ?? [1e-9, "ns"]
  return `${digits(seconds / size)} ${unit}`.replace(/\.0+ /, " ")
}

/** Seconds in three digits, "0" for none: "1.53 ms". */
export function secondsText(seconds) {
  if (!seconds) return "0"
  const [size, unit] = seconds >= 1 ? [1, "s"] : seconds >= 1e-3 ? [1e-3, "ms"] : [1e-6, "µs"]
  return `${digits(seconds / size)} ${unit}`
}

/** A number that may be written as in JSON without NaN: four significant digits. */
export function numberText(value) {
  if (value === null || value === undefined) return "None"
  if (typeof value !== "number") return { NaN: "NaN", Infinity: "∞", "-Infinity": "−∞" }[value]
  const size = Math.abs(value)
  const text = value !== 0 && (size < 1e-3 || size >= 1e4) ? value.toExponential(2) : Number(value.toPrecision(4)).toString()
  return text.replaceAll("-", "−")
}

/** Round steps between two numbers, at most about `most`. @returns {{ step: number, found: number[] }} */
export function ticks(from, to, most) {
  const raw = (to - from) / most, power = 10 ** Math.floor(Math.log10(raw))
  const step = [1, 2, 5, 10].map(n => n * power).find(n => n >= raw)
  const found = []
  for (let k = Math.ceil(from / step); k * step <= to; k += 1) found.push(k * step)
  return { step, found }
}

/** Round steps from 0 in the binary unit of the largest value. */
export function byteTicks(most, count = 5) {
  const unit = 1024 ** powerOf(Math.max(most, 1), 1024, Infinity)
  const rough = most / unit / count, power = 10 ** Math.floor(Math.log10(rough || 1))
  const step = [1, 2, 2.5, 5, 10].find(s => s * power >= rough) * power * unit
  const found = []
  for (let value = 0; value <= most * 1.0001; value += step) found.push(value)
  return found
}

/** A tick in the unit of the largest value of its axis. */
export function byteTickText(value, most) {
  if (!value) return "0"
  const power = powerOf(Math.max(most, 1), 1024, BYTE_UNITS.length - 1)
  return `${+(value / 1024 ** power).toFixed(2)} ${BYTE_UNITS[power]}`
}
