// Time to pixels: what part of the trace is in view, and the ticks under it.

function createSpan() {
  const span = { from: 0, to: 1, whole: 1 }
  span.reset = whole => { span.whole = whole; span.from = 0; span.to = whole }
  span.show = (from, to) => {
    const least = Math.max(span.whole * 1e-6, 2e-7), width = Math.min(Math.max(to - from, least), span.whole)
    span.from = Math.min(Math.max(0, from), span.whole - width)
    span.to = span.from + width
  }
  span.zoom = (factor, at) => span.show(at - (at - span.from) * factor, at + (span.to - at) * factor)
  span.pan = share => { const move = (span.to - span.from) * share; span.show(span.from + move, span.to + move) }
  return span
}

function ticks(from, to, most) {
  const raw = (to - from) / most, power = 10 ** Math.floor(Math.log10(raw))
  const step = [1, 2, 5, 10].map(n => n * power).find(n => n >= raw)
  const found = []
  for (let k = Math.ceil(from / step); k * step <= to; k += 1) found.push(k * step)
  return { step, found }
}

function timeText(seconds, step = seconds) {
  const unit = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]].find(([size]) => Math.abs(step) >= size * 0.999) || [1e-9, "ns"]
  const value = seconds / unit[0]
  return `${Math.abs(value) >= 100 ? value.toFixed(0) : Math.abs(value) >= 10 ? value.toFixed(1) : value.toFixed(2)} ${unit[1]}`.replace(/\.0+ /, " ")
}
