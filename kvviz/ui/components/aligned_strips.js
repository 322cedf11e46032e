const KINDS = ["text", "bytes", "special"]
const drawn = new WeakMap() // root element -> what it shows

export default function ({ data, parentElement }) {
  const root = parentElement.querySelector(".kvviz")
  if (!root) return
  followTheme(root)
  const wanted = JSON.stringify(data)
  if (drawn.get(root) === wanted) return
  drawn.set(root, wanted)
  const list = root.querySelector(".list"), note = root.querySelector(".note")
  root.style.setProperty("--height", `${data.height}px`)
  list.setAttribute("aria-label", data.words.name)
  list.replaceChildren(head(data), ...data.columns.map((state, at) => column(data, state, at)))
  const told = event => {
    const at = event.target.closest(".column")?.dataset.index
    setText(note, at === undefined ? "" : describe(data, Number(at)))
  }
  list.onpointerover = told
  list.onpointerleave = () => setText(note, "")
  showLegend(root.querySelector(".legend"), data)
  Object.assign(root.dataset, {
    shared: data.columns.filter(state => ["reused", "again"].includes(data.states[state])).length,
    reused: data.columns.filter(state => data.states[state] === "reused").length,
  })
  const parted = list.querySelector(".parted, .only")
  const hidden = parted && parted.offsetTop + parted.offsetHeight > list.clientHeight
  list.scrollTop = hidden ? parted.offsetTop - parted.offsetHeight - 9 : 0 // one line of what comes before it
}

function head({ words }) {
  const box = document.createElement("span")
  box.className = "column head"
  box.append(...words.rows.map(name => chip(name, "")))
  return box
}

// Equal tokens stand once, over both lines.
function column(data, state, at) {
  const box = document.createElement("span")
  const [one, two] = data.rows.map(row => at < row.ids.length)
  const same = one && two && data.rows[0].ids[at] === data.rows[1].ids[at]
  box.className = `column ${data.states[state]}${same && state < 2 ? " same" : ""}`
  box.dataset.index = at
  box.title = describe(data, at)
  const rows = same && state < 2 ? [0] : [0, 1]
  box.append(...rows.map(row => (at < data.rows[row].ids.length ? token(data.rows[row], at) : chip("", "none"))))
  return box
}

function token(row, at) {
  return chip(row.labels[at], KINDS[row.kinds[at]])
}

function chip(text, look) {
  const found = document.createElement("span")
  found.className = `token ${look}`
  found.textContent = text
  return found
}

function describe({ rows, words }, at) {
  const [one, two] = rows.map(row => (at < row.ids.length ? [row.ids[at], row.labels[at]] : null))
  if (one && two && one[0] !== two[0])
    return fill(words.two, { position: at, id: one[0], label: one[1], other: two[0], that: two[1] })
  const [id, label] = one ?? two
  return fill(words.one, { position: at, id, label })
}

// Only what is on the screen is explained.
function showLegend(legend, data) {
  const there = [...new Set(data.columns)].sort()
  legend.replaceChildren(...there.map(state => {
    const entry = document.createElement("span"), swatch = document.createElement("span")
    swatch.className = `column swatch ${data.states[state]}`
    swatch.setAttribute("aria-hidden", "true")
    swatch.append(chip("\u00a0", ""))
    entry.append(swatch, data.names[state])
    return entry
  }))
}
