const grids = new WeakMap() // root element -> what it shows

export default function ({ data, parentElement }) {
  const root = parentElement.querySelector(".kvviz")
  if (!root) return
  if (!grids.has(root)) grids.set(root, openGrid(root))
  const grid = grids.get(root)
  followTheme(root)
  grid.inks = inksOf(root)
  receive(grid, data)
  // No cleanup is returned: Streamlit also runs that of a call overtaken by the next one, with the grid still on
  // the page. Everything hangs on the root element and goes with it.
}

function openGrid(root) {
  const part = name => root.querySelector(`.${name}`)
  const grid = { root, stage: part("stage"), base: part("base"), over: part("over"), tip: part("tip"),
                 legend: part("legend"), caption: part("caption"), spoken: part("spoken"),
                 cursor: null, seen: null, frame: 0, stale: true, draws: 0 }
  grid.watch = new ResizeObserver(() => ask(grid, true))
  grid.watch.observe(grid.stage)
  grid.stage.onpointermove = event => {
    if (!grid.plan) return
    const box = grid.stage.getBoundingClientRect()
    point(grid, cellAt(grid.plan, grid.data, event.clientX - box.left, event.clientY - box.top), false)
  }
  grid.stage.onpointerleave = () => point(grid, null, false)
  grid.stage.onblur = () => point(grid, null, false)
  grid.stage.onkeydown = event => steer(grid, event)
  return grid
}

function receive(grid, data) {
  for (const panel of data.panels) panel.bytes = bytesOf(panel.cells) ?? new Uint8Array()
  if (data.marks) data.marks.bytes = bytesOf(data.marks.cells) ?? new Uint8Array()
  data.countBytes = bytesOf(data.counts)
  grid.given = grid.data = data
  const held = data.stored.reduce((sum, count) => sum + count, 0)
  Object.assign(grid.root.dataset, { seen: data.seen, stored: data.stored.join(","), layers: data.rows, prefill: data.prefill,
    held, live: data.live, selected: data.selected ?? "" })
  grid.stage.setAttribute("aria-label", data.words.summary)
  showLegend(grid, held)
  ask(grid, true)
}

// Draws at most once a frame, however often data, size or pointer ask for it.
function ask(grid, stale) {
  grid.stale ||= stale
  if (!grid.frame) grid.frame = requestAnimationFrame(() => {
    grid.frame = 0
    redraw(grid)
  })
}

function redraw(grid) {
  const { inks, base, over, stage } = grid, ratio = devicePixelRatio || 1
  if (!grid.given || !stage.clientWidth) return
  if (grid.stale) {
    const plan = fitted(grid, stage.clientWidth, ratio), { data } = grid
    for (const place of plan.panels) Object.assign(place, { axisWord: data.words.axis, layerWord: data.words.layer, norm: data.words.norm })
    for (const canvas of [base, over]) resize(canvas, plan, ratio)
    grid.root.style.setProperty("--gutter", `${GUTTER}px`)
    setText(grid.caption, data.pool > 1 ? fill(data.words.caption, { pool: data.pool }) : "")
    drawGrid(base.getContext("2d"), data, plan, inks, ratio)
    grid.stale = false
    Object.assign(grid.root.dataset, { draws: ++grid.draws, pool: data.pool, columns: data.columns })
  }
  drawOver(over.getContext("2d"), grid.data, grid.plan, inks, ratio, grid.cursor)
}

// The plan, with columns merged until each has at least one pixel of the screen.
function fitted(grid, width, ratio) {
  const finest = planGrid(grid.given, width)
  const merge = Math.ceil(1 / (finest.cell * ratio) - 1e-6)
  grid.data = merged(grid.given, merge)
  if (grid.cursor && (grid.cursor.row >= grid.data.rows || grid.cursor.column >= grid.data.columns)) point(grid, null, false)
  return (grid.plan = merge > 1 ? planGrid(grid.data, width) : finest)
}

function resize(canvas, plan, ratio) {
  const width = Math.round(plan.width * ratio), height = Math.round(plan.height * ratio)
  if (canvas.width === width && canvas.height === height) return
  Object.assign(canvas, { width, height })
  Object.assign(canvas.style, { width: `${plan.width}px`, height: `${plan.height}px` })
}

function point(grid, cell, spoken) {
  const same = cell?.row === grid.cursor?.row && cell?.column === grid.cursor?.column && cell?.place === grid.cursor?.place
  if (same) return
  grid.cursor = cell
  grid.tip.hidden = !cell
  if (cell) {
    const lines = cellLines(grid.data, cell.row, cell.column)
    grid.tip.replaceChildren(...lines.map(line => Object.assign(document.createElement("div"), { textContent: line })))
    if (spoken) setText(grid.spoken, lines.join(". "))
    placeTip(grid, cell)
  }
  ask(grid, false)
}

function placeTip({ tip, plan }, { row, column, place }) {
  const x = place.x + (column + 1) * plan.cell + 14, y = place.y + (row + 1) * plan.rowHeight + 10
  const left = x + tip.offsetWidth > plan.width ? place.x + column * plan.cell - tip.offsetWidth - 14 : x
  const top = y + tip.offsetHeight > plan.height ? place.y + row * plan.rowHeight - tip.offsetHeight - 10 : y
  Object.assign(tip.style, { left: `${Math.max(0, left)}px`, top: `${Math.max(0, top)}px` })
}

function steer(grid, event) {
  const { data, plan } = grid
  if (!plan || !data.columns || event.ctrlKey || event.metaKey || event.altKey) return
  const { row, column } = grid.cursor ?? { row: 0, column: data.columns - 1 }
  const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0],
                  Home: [0, -column], End: [0, data.columns], PageUp: [-data.rows, 0], PageDown: [data.rows, 0] }
  if (event.key === "Escape") return point(grid, null, true)
  const move = moves[event.key]
  if (!move) return
  event.preventDefault()
  const within = (value, count) => Math.max(0, Math.min(count - 1, value))
  const [down, along] = grid.cursor ? move : [0, 0]
  point(grid, { row: within(row + down, data.rows), column: within(column + along, data.columns),
                place: grid.cursor?.place ?? plan.panels[0] }, true)
}

// Names only what is on the screen: layer kinds, holes, marks.
function showLegend(grid, held) {
  const { data, inks, legend } = grid, { kinds, words, marks } = data
  const entries = kinds.looks.map((look, index) => {
    const count = kinds.rows.filter(row => row === index).length
    return { look, ink: look, text: fill(words.kind, { kind: kinds.words[index], count }) }
  })
  if (held < data.rows * data.seen) entries.push({ look: "hole", text: words.hole })
  if (data.panels.some(panel => panel.bytes.includes(1))) entries.push({ look: "mark", grey: true, text: words.unknown })
  marks?.names.forEach((text, index) => entries.push({ look: "mark", ink: marks.looks[index], text }))
  const wanted = JSON.stringify([entries, inks.dark])
  if (grid.legendShown === wanted) return
  grid.legendShown = wanted
  legend.replaceChildren(...entries.map(entry => {
    const span = document.createElement("span")
    span.append(swatch(entry, inks), entry.text)
    return span
  }))
}

function swatch({ look, ink, grey }, inks) {
  const ratio = devicePixelRatio || 1, canvas = document.createElement("canvas")
  Object.assign(canvas, { width: 18 * ratio, height: 14 * ratio })
  canvas.style.cssText = "width:18px;height:14px"
  canvas.setAttribute("aria-hidden", "true")
  const pen = canvas.getContext("2d")
  pen.scale(ratio, ratio)
  pen.fillStyle = pen.strokeStyle = grey ? "#808080" : ink ? inks.value(`--${ink}`) : inks.text
  if (look === "hole") {
    pen.fillStyle = hatchOf(pen, inks, ratio)
    pen.fillRect(0, 0, 18, 14)
    pen.globalAlpha = 0.4
    pen.strokeRect(0.5, 0.5, 17, 13)
  } else if (look === "mark") pen.fillRect(0, 4, 18, BAND)
  else kindGlyph(pen, look, 3, 2, 12, 10)
  return canvas
}
