const PARTS = ["label", "value", "below"]

export default function ({ data, parentElement }) {
  const root = parentElement.querySelector(".kvviz")
  if (!root) return
  while (root.children.length > data.length) root.lastChild.remove()
  data.forEach((fact, index) => {
    const tile = root.children[index] ?? root.appendChild(newTile())
    tile.dataset.name = fact.name
    PARTS.forEach((part, at) => setText(tile.children[at], fact[part]))
  })
}

function newTile() {
  const tile = document.createElement("div")
  tile.append(...PARTS.map(part => Object.assign(document.createElement("div"), { className: part })))
  return tile
}
