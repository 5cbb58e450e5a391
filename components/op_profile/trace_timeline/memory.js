// The memory curve under the lanes: allocated minus freed, a step function of time.

import { signedBytes } from "../../kit/base.js"

// Level after the last change before `seconds`; null where there is no curve.
export function levelAt(memory, seconds) {
  let low = 0, high = memory.at.length
  while (low < high) {
    const middle = (low + high) >> 1
    if (memory.at[middle] <= seconds) low = middle + 1
    else high = middle
  }
  return memory.at.length ? (low ? memory.bytes[low - 1] : 0) : null
}

export function drawCurve(pen, memory, { xOf, from, to, top, height, width, ink }) {
  const least = Math.min(0, ...memory.bytes), most = Math.max(1, ...memory.bytes)
  const yOf = bytes => top + height * (1 - (bytes - least) / (most - least))
  pen.fillStyle = ink
  pen.globalAlpha = 0.75
  pen.fillText(`memory: allocated minus freed, ${signedBytes(least)} to ${signedBytes(most)}`, 4, top - 8)
  pen.globalAlpha = 1
  pen.beginPath()
  let y = yOf(levelAt(memory, from))
  pen.moveTo(0, y)
  for (let i = 0; i < memory.at.length; i += 1) {
    if (memory.at[i] < from) continue
    if (memory.at[i] > to) break
    const x = xOf(memory.at[i])
    pen.lineTo(x, y)
    y = yOf(memory.bytes[i])
    pen.lineTo(x, y)
  }
  pen.lineTo(width, y)
  pen.strokeStyle = ink
  pen.lineWidth = 1.4
  pen.stroke()
  pen.lineTo(width, yOf(0))
  pen.lineTo(0, yOf(0))
  pen.globalAlpha = 0.12
  pen.fill()
  pen.globalAlpha = 1
  pen.lineWidth = 1
}
