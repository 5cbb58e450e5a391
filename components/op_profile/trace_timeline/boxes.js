// The events as boxes: self times, the part of the step each is in, where each is drawn, which one is at a point.

const ROW = 18, LANE_GAP = 22 // pixels at the usual size of type; times `scale`

export function boxesOf(data, scale) {
  const row = ROW * scale, gap = LANE_GAP * scale
  const count = data.start_s.length
  const boxes = { count, start: data.start_s, length: data.duration_s, lane: data.lane, depth: data.depth, kind: data.kind,
    self: Float64Array.from(data.duration_s), part: new Int8Array(count).fill(-1), top: [], lanes: data.lanes, height: 0, row, gap,
    label: at => data.names[data.name[at]], shapes: at => data.shapes[at] < 0 ? "" : data.names[data.shapes[at]] }
  const around = []
  const deepest = data.lanes.map(() => 0), first = data.lanes.map(() => count)
  for (let at = 0; at < count; at += 1) {
    const lane = data.lane[at], depth = data.depth[at]
    deepest[lane] = Math.max(deepest[lane], depth)
    first[lane] = Math.min(first[lane], at)
    around.length = Math.min(depth, around.length)
    const parent = depth ? around[depth - 1] : undefined
    around[depth] = at
    const own = data.parts.indexOf(boxes.label(at).replaceAll("_", " "))
    boxes.part[at] = data.kind[at] === "range" && own >= 0 ? own : parent === undefined || data.lane[parent] !== lane ? -1 : boxes.part[parent]
    if (parent !== undefined && data.lane[parent] === lane) boxes.self[parent] -= data.duration_s[at]
  }
  let below = 0
  boxes.lanes.forEach((_, lane) => { boxes.top.push(below + gap); below += gap + (deepest[lane] + 1) * row })
  boxes.height = below + 4
  boxes.first = first
  boxes.y = at => boxes.top[boxes.lane[at]] + boxes.depth[at] * row
  boxes.at = (seconds, y) => {
    for (let at = count - 1; at >= 0; at -= 1) {
      const top = boxes.y(at)
      if (y >= top && y < top + row - 1 && seconds >= boxes.start[at] && seconds <= boxes.start[at] + boxes.length[at]) return at
    }
    return null
  }
  return boxes
}

// Time of each name inside a range, self time only, so that nothing is counted twice. Sums to the covered time of a lane.
export function sumRange(boxes, from, to) {
  const self = new Map(), stack = []
  let inside = 0
  const close = entry => {
    const label = boxes.label(entry.at), old = self.get(label) || { seconds: 0, calls: 0 }
    self.set(label, { seconds: old.seconds + entry.own, calls: old.calls + 1 })
  }
  for (let at = 0; at < boxes.count; at += 1) {
    const start = Math.max(from, boxes.start[at]), end = Math.min(to, boxes.start[at] + boxes.length[at])
    while (stack.length && (stack.at(-1).lane !== boxes.lane[at] || stack.at(-1).depth >= boxes.depth[at])) close(stack.pop())
    if (end <= start) continue
    const own = end - start
    if (stack.length) stack.at(-1).own -= own
    else inside += own
    stack.push({ at, own, lane: boxes.lane[at], depth: boxes.depth[at] })
  }
  while (stack.length) close(stack.pop())
  return { inside, rows: [...self].map(([name, { seconds, calls }]) => ({ name, seconds, calls })).sort((a, b) => b.seconds - a.seconds) }
}
