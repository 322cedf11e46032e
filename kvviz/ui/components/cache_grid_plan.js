// Where everything lies, in CSS pixels; the same plan serves drawing, pointer and keyboard.
const GUTTER = 58, TITLE = 32, BAND_TEXT = 20, BAND = 6, AXIS = 46, BETWEEN = 40, UNDER = 24, MARKS = 10
const NARROWEST = 1.2 // columns thinner than this take the whole width, one panel under the other

function planGrid(data, width) {
  const room = Math.max(1, Math.ceil(data.capacity / data.pool))
  const half = Math.floor((width - BETWEEN) / 2)
  const beside = data.panels.length > 1 && width >= 720 && (half - GUTTER - 8) / room >= NARROWEST
  const panelWidth = beside ? half : width
  const tall = beside || data.panels.length === 1
  const rowHeight = Math.max(4, Math.min(tall ? 16 : 12, Math.round((tall ? 330 : 200) / data.rows)))
  const height = rowHeight * data.rows
  const cell = Math.min(22, (panelWidth - GUTTER - 8) / room)
  const marks = data.marks && data.marks.rows === 1 ? MARKS : 0
  const top = TITLE + BAND_TEXT + BAND + 3
  const panelHeight = top + height + marks + AXIS, step = panelHeight + UNDER
  const panels = data.panels.map((panel, index) => ({
    panel,
    left: beside ? index * (panelWidth + BETWEEN) : 0,
    x: (beside ? index * (panelWidth + BETWEEN) : 0) + GUTTER,
    right: (beside ? index * (panelWidth + BETWEEN) : 0) + panelWidth,
    titleY: beside ? 0 : index * step,
    y: (beside ? 0 : index * step) + top,
  }))
  return { width, height: panelHeight + step * (beside ? 0 : panels.length - 1), panels, rowHeight, cell, room, marks,
           gridHeight: height, filled: data.columns * cell, free: room * cell }
}

function cellAt(plan, data, x, y) {
  for (const place of plan.panels) {
    const column = Math.floor((x - place.x) / plan.cell)
    const row = Math.floor((y - place.y) / plan.rowHeight)
    if (row >= 0 && row < data.rows && column >= 0 && column < data.columns) return { row, column, place }
  }
  return null
}

// Round numbers for `count` things so that two written ones are at least `apart` pixels from each other.
function roundStep(unit, apart) {
  for (let power = 1; ; power *= 10)
    for (const digit of [1, 2, 5]) if (digit * power * unit >= apart) return digit * power
}

// The same data with `merge` columns in one: the largest byte wins, so that a hole never hides a held token.
function merged(data, merge) {
  if (merge < 2) return data
  const columns = Math.ceil(data.columns / merge)
  const target = Uint16Array.from({ length: data.columns }, (_, from) => Math.floor(from / merge))
  const grouped = (bytes, rows, count = null) => {
    const out = new Uint8ClampedArray(rows * columns)
    for (let row = 0, from = 0; row < rows; row++)
      for (let column = 0; column < data.columns; column++, from++) {
        const to = row * columns + target[column], byte = bytes[from]
        if (count) out[to] += count(byte)
        else if (byte > out[to]) out[to] = byte
      }
    return out
  }
  const { panels, rows, marks, countBytes } = data
  return {
    ...data, columns, pool: data.pool * merge,
    panels: panels.map(panel => ({ ...panel, bytes: grouped(panel.bytes, rows) })),
    countBytes: countBytes ? grouped(countBytes, rows, byte => byte) : grouped(panels[0].bytes, rows, byte => (byte ? 1 : 0)),
    marks: marks && { ...marks, bytes: grouped(marks.bytes, marks.rows) },
  }
}

const normOf = (panel, byte) => (byte < 2 ? NaN : panel.low + ((byte - 2) / 253) * (panel.high - panel.low))

const inShort = number => (Number.isFinite(number) ? String(Number(number.toPrecision(3))) : "NaN")

// What one cell is, in words: the tooltip's lines and the spoken text.
function cellLines(data, row, column) {
  const { words } = data
  const first = column * data.pool, last = Math.min(first + data.pool, data.seen) - 1
  const index = row * data.columns + column
  const held = data.panels[0].bytes[index] > 0
  const lines = [fill(words.row, { layer: data.layers[row], kind: data.kinds.words[data.kinds.rows[row]] })]
  if (data.pool > 1) lines.push(fill(words.positions, { first, last }))
  else lines.push(fill(data.labels ? words.token : words.position, { position: first, label: data.labels?.[first] ?? "" }))
  if (data.pool > 1) lines.push(fill(words.some, { held: data.countBytes[index], count: last - first + 1 }))
  else lines.push(held ? words.held : words.hole)
  for (const panel of held ? data.panels : []) {
    const byte = panel.bytes[index], edge = (byte === 255 && panel.above && "≥ ") || (byte === 2 && panel.below && "≤ ") || "≈ "
    const value = byte === 1 ? "NaN" : data.whole ? String(Math.round(normOf(panel, byte))) : edge + inShort(normOf(panel, byte))
    lines.push(fill(words.value, { panel: panel.title, value }))
  }
  const mark = data.marks?.bytes[(data.marks.rows === 1 ? 0 : row) * data.columns + column]
  if (mark) lines.push(data.marks.names[mark - 1])
  return lines
}
