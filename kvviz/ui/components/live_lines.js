const LEFT = 78, RIGHT = 14, TOP = 10, BOTTOM = 52
const waiting = new WeakMap() // root element -> what it shows next

// Draws at most once a frame and the newest only, however far the browser is behind.
export default function ({ data, parentElement }) {
  const root = parentElement.querySelector(".kvviz")
  if (!root) return
  if (!waiting.has(root)) requestAnimationFrame(() => {
    const charts = waiting.get(root)
    waiting.delete(root)
    followTheme(root)
    const style = getComputedStyle(root), ink = name => style.getPropertyValue(name).trim()
    while (root.children.length < charts.length) root.append(newChart())
    charts.forEach((chart, at) => showChart(root.children[at], chart, ink))
  })
  waiting.set(root, data)
}

function newChart() {
  const box = document.createElement("div"), canvas = document.createElement("canvas")
  const part = name => Object.assign(document.createElement("div"), { className: name })
  canvas.setAttribute("role", "img")
  box.append(part("title"), part("legend"), canvas)
  return box
}

function showChart(box, chart, ink) {
  const [title, legend, canvas] = box.children
  const wanted = JSON.stringify([chart.title, chart.lines.map(({ name, look }) => [name, ink(`--${look}`)])])
  if (box.dataset.shown !== wanted) {
    box.dataset.shown = wanted
    title.replaceChildren(...chart.title.split("**").map((text, at) => made(at % 2 ? "b" : "span", text)))
    legend.replaceChildren(...chart.lines.map(({ name, look, width }) => {
      const entry = made("span", name), swatch = made("i", "")
      swatch.style.borderTop = `${width}px solid ${ink(`--${look}`)}`
      entry.prepend(swatch)
      return entry
    }))
    canvas.setAttribute("aria-label", `${chart.title.replaceAll("**", "")} ${chart.y} / ${chart.x}`)
  }
  box.dataset.points = chart.lines.map(line => line.points.length).join()
  drawChart(canvas, chart, ink)
}

const made = (tag, text) => Object.assign(document.createElement(tag), { textContent: text })

function drawChart(canvas, { x, y, lines }, ink) {
  const ratio = devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight
  const pen = canvas.getContext("2d")
  Object.assign(canvas, { width: width * ratio, height: height * ratio }) // clears it, too
  pen.scale(ratio, ratio)
  const right = width - RIGHT, bottom = height - BOTTOM
  const [across, up] = [0, 1].map(at => axisTo(Math.max(...lines.flatMap(line => line.points.map(point => point[at])), 0)))
  const place = point => [LEFT + (point[0] / across.end) * (right - LEFT), bottom - (point[1] / up.end) * (bottom - TOP)]
  pen.font = `14px ${ink("--st-font") || "sans-serif"}`
  pen.fillStyle = pen.strokeStyle = ink("--st-text-color") || "#31333f"
  drawTicks(pen, across, tick => [...place([tick, 0]), 0, 20, "center"])
  drawTicks(pen, up, tick => [...place([0, tick]), -10, 5, "right", right])
  pen.textAlign = "center"
  pen.fillText(x, (LEFT + right) / 2, height - 8)
  pen.save()
  pen.translate(16, (TOP + bottom) / 2)
  pen.rotate(-Math.PI / 2)
  pen.fillText(y, 0, 0)
  pen.restore()
  for (const line of lines) {
    pen.strokeStyle = ink(`--${line.look}`)
    pen.lineWidth = line.width
    pen.beginPath()
    for (const point of line.points) pen.lineTo(...place(point))
    pen.stroke()
  }
}

// Four to eight round steps, and room for the largest.
function axisTo(largest) {
  const rough = (largest || 1) / 5, power = 10 ** Math.floor(Math.log10(rough))
  const step = [1, 2, 5, 10].find(digit => digit * power >= rough) * power
  return { step, end: Math.ceil((largest || 1) / step) * step }
}

function drawTicks(pen, { step, end }, at) {
  for (let index = 0; index * step <= end * 1.0001; index++) {
    const value = Number((index * step).toPrecision(6)), [x, y, right, down, align, rule] = at(value)
    pen.textAlign = align
    pen.fillText(value.toLocaleString("en"), x + right, y + down)
    if (!rule) continue
    pen.globalAlpha = 0.15
    pen.fillRect(x, Math.round(y), rule - x, 1)
    pen.globalAlpha = 1
  }
}
