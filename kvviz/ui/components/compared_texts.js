export default function ({ data, parentElement }) {
  const root = parentElement.querySelector(".kvviz")
  if (!root) return
  followTheme(root)
  const cards = root.querySelector(".cards")
  while (cards.children.length > data.cards.length) cards.lastChild.remove()
  while (cards.children.length < data.cards.length) cards.append(openCard())
  data.cards.forEach((card, index) => {
    for (const part of ["title", "note", "same", "rest"]) setText(cards.children[index].querySelector("." + part), card[part])
    cards.children[index].querySelector(".rest").hidden = !card.rest
  })
}

function openCard() {
  const card = piece("section", "card")
  const text = piece("div", "text")
  text.append(piece("span", "same"), piece("mark", "rest"))
  card.append(piece("div", "title"), piece("div", "note"), text)
  return card
}

function piece(tag, name) {
  const element = document.createElement(tag)
  element.className = name
  return element
}
