const KINDS = ["text", "bytes", "special"]
const ORIGINS = ["user", "template", "bos", "generated"]
const strips = new WeakMap() // root element -> what it shows

export default function ({ data, parentElement, setStateValue }) {
  const root = parentElement.querySelector(".kvviz")
  if (!root) return
  if (!strips.has(root)) strips.set(root, openStrip(root))
  const strip = strips.get(root)
  strip.tell = index => setStateValue("selected", index)
  followTheme(root)
  showTokens(strip, data)
}

function openStrip(root) {
  const strip = {
    root,
    list: root.querySelector(".list"),
    legend: root.querySelector(".legend"),
    note: root.querySelector(".note"),
    seen: [],
    data: { labels: [] },
    selected: null,
    asked: undefined,
    told: [], // choices that the page has not answered yet
    following: true,
  }
  const { list } = strip
  const at = event => {
    const token = event.target.closest(".token")
    return token ? Number(token.dataset.index) : null
  }
  list.onclick = event => {
    const index = at(event)
    if (index !== null) choose(strip, index === strip.selected && !strip.data.kept ? null : index)
  }
  list.onpointerover = event => tellOf(strip, at(event) ?? strip.selected)
  list.onpointerleave = () => tellOf(strip, strip.selected)
  list.onscroll = () => (strip.following = list.scrollHeight - list.scrollTop - list.clientHeight < 32)
  list.onkeydown = event => pressed(strip, event)
  return strip
}

function pressed(strip, event) {
  const last = strip.data.labels.length - 1
  const now = strip.selected ?? (event.key === "ArrowLeft" || event.key === "ArrowUp" ? last + 1 : -1)
  const steps = {
    ArrowRight: () => Math.min(last, now + 1),
    ArrowLeft: () => Math.max(0, now - 1),
    ArrowDown: () => nextLine(strip, now, 1),
    ArrowUp: () => nextLine(strip, now, -1),
    Home: () => 0,
    End: () => last,
    Escape: () => (strip.data.kept ? strip.selected : null),
  }
  if (last < 0 || !steps[event.key] || event.ctrlKey || event.metaKey || event.altKey) return
  event.preventDefault()
  choose(strip, steps[event.key]())
  strip.list.children[strip.selected]?.scrollIntoView({ block: "nearest" })
}

// The token under or over this one on the screen.
function nextLine(strip, index, direction) {
  const tokens = strip.list.children
  const here = tokens[Math.min(Math.max(index, 0), tokens.length - 1)]
  if (index < 0 || index >= tokens.length) return direction > 0 ? 0 : tokens.length - 1
  let top = null, best = index, distance = Infinity
  for (let i = index + direction; i >= 0 && i < tokens.length; i += direction) {
    const y = tokens[i].offsetTop + tokens[i].offsetHeight
    if (Math.abs(y - here.offsetTop - here.offsetHeight) < 4) continue
    if (top !== null && Math.abs(y - top) > 4) break
    top = y
    const apart = Math.abs(tokens[i].offsetLeft - here.offsetLeft)
    if (apart < distance) [best, distance] = [i, apart]
  }
  return best
}

function choose(strip, index) {
  mark(strip, index)
  clearTimeout(strip.timer) // a held key is one choice, not thirty reruns
  strip.timer = setTimeout(() => tell(strip, index), 120)
}

function tell(strip, index) {
  strip.timer = null
  strip.told.push(index)
  strip.tell(index)
}

function mark(strip, index) {
  const { list } = strip
  list.children[strip.selected]?.setAttribute("aria-selected", "false")
  strip.selected = index
  const token = index === null ? null : list.children[index]
  token?.setAttribute("aria-selected", "true")
  if (token) list.setAttribute("aria-activedescendant", token.id)
  else list.removeAttribute("aria-activedescendant")
  strip.root.dataset.selected = index ?? ""
  tellOf(strip, index)
}

function describe({ data }, index) {
  const { words } = data
  const facts = { position: data.start + index, id: data.ids[index], label: data.labels[index] }
  return [fill(words.token, facts), words.kinds[data.kinds[index]], words.origins[data.origins[index]]].join(" · ")
}

function tellOf(strip, index) {
  const inside = index !== null && index !== undefined && index < strip.data.labels.length
  setText(strip.note, inside ? describe(strip, index) : "")
}

function showTokens(strip, data) {
  const { list, root } = strip
  const weights = bytesOf(data.weights)
  const { token: sentence, kinds, origins } = data.words, language = [sentence, kinds, origins].join()
  const sameWords = strip.language === language
  strip.language = language
  strip.data = data
  root.style.setProperty("--height", `${data.height}px`)
  list.setAttribute("aria-label", data.words.name)
  while (list.children.length > data.labels.length) list.lastChild.remove()
  strip.seen.length = Math.min(strip.seen.length, data.labels.length)
  const born = document.createDocumentFragment()
  data.labels.forEach((label, index) => {
    const fresh = data.fresh !== null && index >= data.fresh
    const look = `${label}\u0000${data.ids[index]}\u0000${data.kinds[index]}${data.origins[index]}${fresh}${weights?.[index] ?? ""}`
    if (strip.seen[index] === look && sameWords) return
    strip.seen[index] = look
    let token = list.children[index]
    if (!token) token = born.appendChild(newToken(index))
    setText(token, label)
    token.className = `token ${KINDS[data.kinds[index]]} ${ORIGINS[data.origins[index]]}${index % 2 ? " odd" : ""}${fresh ? " fresh" : ""}`
    token.title = describe(strip, index)
    tint(token, weights && weights[index], data.tint)
  })
  list.append(born)
  Object.assign(root.dataset, { count: data.labels.length, live: data.live })
  if (data.selected !== strip.asked) (data.kept ? follow : mark)(strip, data.selected)
  else mark(strip, strip.selected !== null && strip.selected < data.labels.length ? strip.selected : null)
  strip.asked = data.selected
  showLegend(strip)
  if (data.live && strip.following) list.scrollTop = list.scrollHeight
}

// The page keeps the selection. Its answer to a choice is no news, and one to an earlier choice comes too late; anything
// else was moved by another control, and the component's state must follow, or choosing what it still names is no change.
function follow(strip, selected) {
  const answered = strip.told.indexOf(selected)
  strip.told.splice(0, answered < 0 ? Infinity : answered + 1)
  if (strip.timer || strip.told.length) return
  mark(strip, selected)
  if (answered < 0 && strip.asked !== undefined) strip.tell(selected)
}

function newToken(index) {
  const token = document.createElement("span")
  token.id = `token-${index}`
  token.dataset.index = index
  token.setAttribute("role", "option")
  token.setAttribute("aria-selected", "false")
  return token
}

function tint(token, weight, meaning) {
  if (weight === null) return token.removeAttribute("style")
  token.style.setProperty("--tint", `var(--${meaning})`)
  token.style.setProperty("--share", `${Math.round((weight / 255) * 55)}%`)
}

// Only what is on the screen is explained.
function showLegend({ legend, data }) {
  const kinds = new Set(data.kinds), origins = new Set(data.origins)
  const entries = ORIGINS.flatMap((name, i) => (origins.has(String(i)) ? [[`text ${name}`, "\u00a0", data.words.origins[i]]] : []))
  if (kinds.has("1")) entries.push(["bytes", "E7", data.words.kinds[1]])
  if (kinds.has("2")) entries.push(["special", "\u00a0", data.words.kinds[2]])
  entries.push(...data.scale.map(([weight, text]) => ["", "\u00a0", text, weight]))
  const wanted = JSON.stringify([entries, data.tint])
  if (legend.dataset.shown === wanted) return
  legend.dataset.shown = wanted
  legend.replaceChildren(...entries.map(([look, sample, text, weight = null]) => {
    const entry = document.createElement("span"), swatch = document.createElement("span")
    swatch.className = `token ${look}`
    swatch.setAttribute("aria-hidden", "true")
    swatch.textContent = sample
    tint(swatch, weight, data.tint)
    entry.append(swatch, text)
    return entry
  }))
}
