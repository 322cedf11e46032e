"""What the screen components' style sheets and scripts are made of: CSS variables of the palette, files."""

from pathlib import Path

from kvviz.palette import COLOURS, RAMPS


def source(*names: str) -> str:
    """The texts of files in this folder, joined; always more than one line, or Streamlit takes it for a path."""
    return "\n".join((Path(__file__).parent / name).read_text(encoding="utf-8") for name in names)


def palette_css() -> str:
    """CSS variables of every meaning and ramp under `.kvviz`, with the dark variants under `.kvviz.dark`."""
    return "\n".join(f"{selector} {{\n{_variables(dark)}\n}}" for selector, dark in ((".kvviz", 0), (".kvviz.dark", 1)))


def _variables(dark: int) -> str:
    colours = [f"  --{_css(name)}: {pair[dark]};" for name, pair in COLOURS.items()]
    theme = "dark" if dark else "light"
    ramps = [f"  --ramp-{_css(name)}: {','.join(ramp[theme])};" for name, ramp in RAMPS.items()]
    return "\n".join(colours + ramps)


def _css(name: str) -> str:
    return name.replace("_", "-")
