// Time to pixels: what part of the trace is in view.

export function createSpan() {
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
