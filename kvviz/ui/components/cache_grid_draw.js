// Colours as the page has them now.
function inksOf(root) {
  const style = getComputedStyle(root)
  const value = name => style.getPropertyValue(name).trim()
  const text = value("--st-text-color") || "#31333f"
  return {
    value,
    text,
    page: value("--st-background-color") || "#fff",
    primary: value("--st-primary-color") || text,
    font: value("--st-font") || "sans-serif",
    dark: root.classList.contains("dark"),
    ramps: {},
  }
}

const rgbOf = hex => [1, 3, 5].map(at => parseInt(hex.slice(at, at + 2), 16))

// The 256 colours of a panel: nothing for a hole, grey for a norm that is not a number, then the ramp.
function rampOf(inks, name) {
  if (inks.ramps[name]) return inks.ramps[name]
  const stops = inks.value(`--ramp-${name}`).split(",").map(stop => rgbOf(stop.trim()))
  const colours = new Uint8ClampedArray(256 * 4)
  colours.set([128, 128, 128, 255], 4)
  for (let byte = 2; byte < 256; byte++) {
    const at = ((byte - 2) / 253) * (stops.length - 1), low = Math.min(Math.floor(at), stops.length - 2)
    colours.set([...stops[low].map((from, i) => from + (stops[low + 1][i] - from) * (at - low)), 255], byte * 4)
  }
  return (inks.ramps[name] = new Uint32Array(colours.buffer))
}

function pictureOf(bytes, columns, rows, colours) {
  const picture = new OffscreenCanvas(Math.max(1, columns), Math.max(1, rows))
  const pen = picture.getContext("2d"), image = pen.createImageData(picture.width, picture.height)
  const pixels = new Uint32Array(image.data.buffer)
  for (let index = 0; index < bytes.length; index++) pixels[index] = colours[bytes[index]]
  pen.putImageData(image, 0, 0)
  return picture
}

function hatchOf(pen, inks, ratio) {
  const size = Math.round(8 * ratio), tile = new OffscreenCanvas(size, size), ink = tile.getContext("2d")
  ink.strokeStyle = inks.text
  ink.globalAlpha = 0.3
  ink.lineWidth = ratio
  for (const shift of [-size, 0, size]) {
    ink.beginPath()
    ink.moveTo(shift - 1, size + 1)
    ink.lineTo(shift + size + 1, -1)
    ink.stroke()
  }
  const pattern = pen.createPattern(tile, "repeat")
  pattern.setTransform(new DOMMatrix().scale(1 / ratio))
  return pattern
}

// How a layer kind looks without its colour: whole, the newest half, two blocks, a thread, an empty frame.
function kindGlyph(pen, look, x, y, width, height) {
  const half = width / 2
  if (look === "full") pen.fillRect(x, y, width, height)
  else if (look === "sliding") pen.fillRect(x + half, y, half, height)
  else if (look === "chunked") {
    pen.fillRect(x, y, half - 1, height)
    pen.fillRect(x + half + 1, y, half - 1, height)
  } else if (look === "linear") pen.fillRect(x, y + height / 2 - 1, width, 2)
  else pen.strokeRect(x + 0.5, y + 0.5, width - 1, height - 1)
}

function drawGrid(pen, data, plan, inks, ratio) {
  pen.setTransform(ratio, 0, 0, ratio, 0, 0)
  pen.clearRect(0, 0, plan.width, plan.height)
  pen.imageSmoothingEnabled = false
  pen.textBaseline = "middle"
  for (const place of plan.panels) {
    drawTitle(pen, place, inks)
    drawBand(pen, data, plan, place, inks)
    drawCells(pen, data, plan, place, inks, ratio)
    drawLayers(pen, data, plan, place, inks)
    drawAxis(pen, data, plan, place, inks)
  }
}

function write(pen, inks, text, x, y, { size = 14, weight = 400, align = "left", alpha = 0.82, ink = inks.text } = {}) {
  pen.font = `${weight} ${size}px ${inks.font}`
  pen.textAlign = align
  pen.fillStyle = ink
  pen.globalAlpha = alpha
  pen.fillText(text, x, y)
  pen.globalAlpha = 1
  return pen.measureText(text).width
}

function drawTitle(pen, place, inks) {
  const { panel, titleY, right } = place, y = titleY + 11
  write(pen, inks, panel.title, place.x, y, { size: 17, weight: 600, alpha: 1, ink: inks.value(`--${panel.name}`) })
  const high = (panel.above ? "≥ " : "") + inShort(panel.high), low = (panel.below ? "≤ " : "") + inShort(panel.low)
  const width = 92, end = right - 8 - write(pen, inks, high, right, y, { align: "right" })
  const colours = rampOf(inks, panel.name), strip = Uint8Array.from({ length: width }, (_, i) => 2 + Math.round((i / (width - 1)) * 253))
  pen.drawImage(pictureOf(strip, width, 1, colours), end - width, y - 6, width, 12)
  const start = end - width - 8
  write(pen, inks, `${place.norm}  ${low}`, start, y, { align: "right" })
}

function drawBand(pen, data, plan, place, inks) {
  const { words, prefill, seen, pool } = data, y = place.y - 3 - BAND
  const split = (prefill / pool) * plan.cell
  const parts = [["prefill", 0, split, prefill], ["decode", split, plan.filled, seen - prefill]]
  let free = place.x
  for (const [name, from, to, count] of parts) {
    if (!count) continue
    const gap = name === "decode" && from > 0 ? 1 : 0
    pen.fillStyle = inks.value(`--${name}`)
    pen.fillRect(place.x + from + gap, y, Math.max(1, to - from - gap), BAND)
    const at = Math.max(free, place.x + from + gap)
    free = at + 14 + write(pen, inks, fill(words[name], { count: count.toLocaleString("en") }), at, y - 10,
      { weight: 600, alpha: 1, ink: inks.value(`--${name}`) })
  }
}

function drawCells(pen, data, plan, place, inks, ratio) {
  const { x, y, panel } = place, { filled, gridHeight, rowHeight, cell } = plan
  pen.save()
  pen.fillStyle = hatchOf(pen, inks, ratio)
  pen.fillRect(x, y, filled, gridHeight)
  pen.restore()
  pen.drawImage(pictureOf(panel.bytes, data.columns, data.rows, rampOf(inks, panel.name)), x, y, filled, gridHeight)
  drawMarks(pen, data, plan, place, inks)
  pen.fillStyle = inks.page
  if (rowHeight >= 6) for (let row = 1; row < data.rows; row++) pen.fillRect(x, y + row * rowHeight - 0.5, filled, 1)
  if (cell >= 6) for (let column = 1; column < data.columns; column++) pen.fillRect(x + column * cell - 0.5, y, 1, gridHeight)
  if (plan.free - filled < 1) return
  pen.strokeStyle = inks.text
  pen.globalAlpha = 0.28
  pen.setLineDash([2, 4])
  pen.strokeRect(x + filled + 0.5, y + 0.5, plan.free - filled - 1, gridHeight - 1)
  pen.setLineDash([])
  pen.globalAlpha = 1
}

// One row of marks is a band under the grid; marks of single cells fill their lower part.
function drawMarks(pen, data, plan, place, inks) {
  if (!data.marks) return
  const { bytes, rows, looks } = data.marks, colours = new Uint32Array(256)
  const parts = new Uint8ClampedArray(colours.buffer)
  looks.forEach((look, index) => parts.set([...rgbOf(inks.value(`--${look}`)), 255], (index + 1) * 4))
  const picture = pictureOf(bytes, data.columns, rows, colours)
  if (rows === 1) return pen.drawImage(picture, place.x, place.y + plan.gridHeight + 3, plan.filled, BAND)
  const part = Math.max(2, Math.round(plan.rowHeight * 0.4))
  for (let row = 0; row < rows; row++)
    pen.drawImage(picture, 0, row, data.columns, 1, place.x, place.y + (row + 1) * plan.rowHeight - part, plan.filled, part)
}

function drawLayers(pen, data, plan, place, inks) {
  const { rowHeight } = plan, every = roundStep(rowHeight, 17)
  data.layers.forEach((layer, row) => {
    const y = place.y + row * rowHeight, look = data.kinds.looks[data.kinds.rows[row]]
    pen.fillStyle = pen.strokeStyle = inks.value(`--${look}`)
    kindGlyph(pen, look, place.x - 16, y + (rowHeight >= 6 ? 0.5 : 0), 10, rowHeight - (rowHeight >= 6 ? 1 : 0))
    if (row % every === 0) write(pen, inks, String(layer), place.x - 23, y + rowHeight / 2 + 0.5, { align: "right" })
  })
  write(pen, inks, place.layerWord, place.x - 23, place.y - 3 - BAND - 10, { align: "right" })
}

function drawAxis(pen, data, plan, place, inks) {
  const y = place.y + plan.gridHeight + plan.marks, every = roundStep(plan.cell / data.pool, 56)
  pen.strokeStyle = inks.text
  for (let position = 0; position < plan.room * data.pool; position += every) {
    const x = place.x + ((position + 0.5) / data.pool) * plan.cell
    pen.globalAlpha = 0.5
    pen.fillStyle = inks.text
    pen.fillRect(Math.round(x), y + 3, 1, 4)
    write(pen, inks, position.toLocaleString("en"), x, y + 16, { align: position ? "center" : "left" })
  }
  write(pen, inks, place.axisWord, place.x, y + 34)
}

// What moves: the frame around the newest column, the cell under the pointer or cursor, the chosen step.
function drawOver(pen, data, plan, inks, ratio, cursor) {
  pen.setTransform(ratio, 0, 0, ratio, 0, 0)
  pen.clearRect(0, 0, plan.width, plan.height)
  const { cell, rowHeight, gridHeight } = plan, decode = inks.value("--decode")
  for (const place of plan.panels) {
    if (data.live && data.columns && data.seen > data.prefill) newest(pen, plan, place, data.columns - 1, decode)
    if (data.selected !== null && data.selected < data.seen)
      chosen(pen, plan, place, Math.floor(data.selected / data.pool), inks)
    if (!cursor) continue
    const x = place.x + cursor.column * cell, y = place.y + cursor.row * rowHeight
    pen.fillStyle = inks.text
    pen.globalAlpha = 0.1
    pen.fillRect(place.x, y, plan.filled, rowHeight)
    pen.fillRect(x, place.y, cell, gridHeight)
    pen.globalAlpha = 1
    frame(pen, x - 1.5, y - 1.5, Math.max(cell, 2) + 3, rowHeight + 3, inks)
  }
}

function newest(pen, plan, place, column, ink) {
  const x = place.x + (column + 0.5) * plan.cell, width = Math.max(plan.cell, 2) + 2
  pen.fillStyle = pen.strokeStyle = ink
  pen.lineWidth = 1.5
  pen.strokeRect(x - width / 2, place.y - 1, width, plan.gridHeight + 2)
  pen.lineWidth = 1
}

function chosen(pen, plan, place, column, inks) {
  const x = place.x + (column + 0.5) * plan.cell, width = Math.max(plan.cell, 2) + 3
  frame(pen, x - width / 2, place.y - 1.5, width, plan.gridHeight + 3, { ...inks, text: inks.primary })
  pen.fillStyle = inks.primary
  pen.beginPath()
  pen.moveTo(x, place.y - 2)
  pen.lineTo(x - 6, place.y - 12)
  pen.lineTo(x + 6, place.y - 12)
  pen.fill()
}

// Two lines, so that the frame shows on light and on dark cells.
function frame(pen, x, y, width, height, inks) {
  pen.lineWidth = 3.5
  pen.strokeStyle = inks.page
  pen.strokeRect(x, y, width, height)
  pen.lineWidth = 2
  pen.strokeStyle = inks.text
  pen.strokeRect(x, y, width, height)
  pen.lineWidth = 1
}
