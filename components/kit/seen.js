// Which lessons were opened in this browser. Nothing of it leaves the browser.

const STORED = "lab-seen"

/** Addresses of the lessons, as the start page links them. */
export function seenLessons() {
  try {
    return new Set(JSON.parse(localStorage.getItem(STORED) ?? "[]"))
  } catch { return new Set() } // storage is switched off, or holds something else
}

export function sawLesson(address) {
  const seen = seenLessons()
  if (!address || seen.has(address)) return
  try {
    localStorage.setItem(STORED, JSON.stringify([...seen, address]))
  } catch { /* storage is switched off */ }
}
