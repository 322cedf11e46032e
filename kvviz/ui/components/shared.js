// Fills {name} places in one pass, so that a token spelled "{label}" stays what it is.
const fill = (sentence, facts) => sentence.replace(/\{(\w+)\}/g, (all, name) => facts[name] ?? all)

function bytesOf(text) {
  if (!text) return null
  const letters = atob(text), bytes = new Uint8Array(letters.length)
  for (let i = 0; i < bytes.length; i++) bytes[i] = letters.charCodeAt(i)
  return bytes
}

// The palette has a light and a dark half; which one is told by the page behind the component.
function followTheme(root) {
  const context = (followTheme.context ??= document.createElement("canvas").getContext("2d", { willReadFrequently: true }))
  context.fillStyle = "#fff"
  context.fillStyle = getComputedStyle(root).getPropertyValue("--st-background-color").trim() || "#fff"
  context.fillRect(0, 0, 1, 1)
  const [red, green, blue] = context.getImageData(0, 0, 1, 1).data
  root.classList.toggle("dark", 0.299 * red + 0.587 * green + 0.114 * blue < 128)
}

// Touching an unchanged text would make the browser lay it out again.
function setText(element, text) {
  if (element.textContent !== text) element.textContent = text
}
